"""``rankscope lab``: a group whose sub-verbs are imported only when they run."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from rankscope_cli.verbs.lab import EXPERIMENTS

HEAVY = ("torch", "numpy", "pandas", "scipy", "matplotlib")


def test_the_help_lists_every_experiment(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = cli("lab", "--help")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    positions = [result.stdout.index(f"│ {name} ") for name in EXPERIMENTS]
    assert positions == sorted(positions)


@pytest.mark.parametrize("args", [("lab", "--help"), ("lab", "encoders", "--help"), ("lab", "encodes")])
def test_nothing_heavy_is_imported_for_help_and_mistakes(args: tuple[str, ...]) -> None:
    code = (
        "import sys\n"
        "from rankscope_cli.app import run\n"
        f"code = run({list(args)!r})\n"
        f"print('LOADED', code, [m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines()[-1] == f"LOADED {2 if args[-1] == 'encodes' else 0} []"


def test_an_unknown_experiment_is_one_line_with_the_nearest_name(refused: Any) -> None:
    line = refused("lab", "tokenisers")
    assert "'tokenisers'" in line
    assert "'tokenizers'" in line
    assert "rankscope lab --help" in line


def test_no_experiment_is_the_help_and_exit_code_2(cli: Any) -> None:
    result = cli("lab")
    assert result.exit_code == 2
    assert "encoders" in result.output


@pytest.mark.parametrize("args", [("lab", "--debug", "slot"), ("--debug", "lab", "slot")])
def test_debug_works_before_the_experiment(cli: Any, args: tuple[str, ...]) -> None:
    result = cli(*args)
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
