"""Every verb that writes is tried, or named with the reason why not."""

from __future__ import annotations

from tests.faults.verbs import BROKEN, UNTRIED, VERBS

from rankscope_cli.app import VERBS as EVERY
from rankscope_cli.app import load_verb
from rankscope_cli.verbs.lab import EXPERIMENTS


def test_every_verb_with_out_is_tried_or_is_a_named_exception() -> None:
    modules = {name: name for name in EVERY if name != "lab"} | {f"lab {name}": f"lab_{name}" for name in EXPERIMENTS}
    writing = {name for name, module in modules.items() if any("--out" in one.opts for one in load_verb(module).params)}
    tried = {verb.words.split()[0] for name, verb in VERBS.items() if name != BROKEN}
    assert writing - tried == set(UNTRIED)
    assert tried <= writing
    assert all(UNTRIED.values())


def test_every_tried_verb_names_what_it_writes() -> None:
    assert [name for name, verb in VERBS.items() if name != BROKEN and not verb.targets] == []
