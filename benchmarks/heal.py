"""Healing of a compressed model, with its controls: the teacher healed for as long, and a kind of series held out.

The model is cut to a share of all parameters and healed with several seeds; beside it stand the model before, the
healed one in int8, and the original after the same steps with itself for a teacher, so that what healing adds is told
from what any further training adds. With --held-out one kind of generated series is then left out of healing, and
models healed with and without it are scored on that kind. ``--out`` is written after every model, and the same command
goes on where it was stopped.

    python benchmarks/heal.py --held-out --suite dev.yaml --data DIR --out benchmarks/results/heal-bundled-bolt.json
    python benchmarks/heal.py --model bundled-2 --ratio 0.15 --suite dev.yaml --data DIR --out FILE
    python benchmarks/heal.py --grid --suite dev.yaml --data DIR --out benchmarks/results/heal-grid-bundled-bolt.json
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from accuracy import scored, sizes_of
from digests import COMPRESSION, HEALING, SCORING, bundled
from provenance import conditions, earlier, machine, origin, parser, save, suite_options

RATES = (2e-4, 4e-4, 8e-4)
TRUTHS = (0.0, 0.5, 1.0)
COMPARED = ("compressed", "healed-0")
"""Models that one healed without a kind is compared with."""
HELD_OUT = {"intermittent": "kind_intermittent_daily", "steps": "kind_steps_5min", "strong": "kind_strong_hourly"}
"""Kinds that are left out, and a set of the suite ``generated`` that is of the kind."""
CALIBRATION = "mixture:1024"


@contextlib.contextmanager
def without(kind: str | None) -> Iterator[None]:
    """Leave a kind out of all generated series inside the block."""
    from rankscope.train.data.structured import KINDS

    if kind is None:
        yield
        return
    kept = KINDS[kind]
    KINDS[kind] = replace(kept, weight=0.0)
    try:
        yield
    finally:
        KINDS[kind] = kept


class Study:
    """Healings of one compressed model in one folder, and what was measured of them.

    Attributes:
        found: ``forms`` and ``generated``, scores over the original's on the suite of the options and on that of
            generated series, and ``heal``, what healing reported, each by the name of a model.
    """

    def __init__(self, options: argparse.Namespace, place: Path, found: dict[str, Any]) -> None:
        from rankscope import open_checkpoint

        self.options, self.place, self.found = options, place, found
        self.original = open_checkpoint(options.model)

    @cached_property
    def small(self) -> Path:
        """The model that is healed."""
        from rankscope.compress import CompressOptions, compress

        out = self.place / "small"
        compress(self.original, CompressOptions(ratio=self.options.ratio, calibration=CALIBRATION), out=out)
        return out

    def measure(self, name: str) -> None:
        """Heal a model of `wanted` and score it."""
        kind = name.removeprefix("without-") if name.startswith("without-") else None
        with without(kind):
            folder = self.small if name == "compressed" else self.healed(name)
        if kind is None:
            self.score(name, folder)
        if self.options.held_out and (kind is not None or name in COMPARED):
            self.score(name, folder, "generated")
        if name == "healed-0":
            self.score("int8", self.int8(folder))

    def healed(self, name: str) -> Path:
        """Heal, keep what the report says, and return the folder."""
        from rankscope.compress.heal import HealConfig, heal
        from rankscope.io import codec

        out = self.place / name
        changes: dict[str, Any] = {}
        if name.startswith("healed-"):
            changes["seed"] = int(name.removeprefix("healed-"))
        elif self.options.grid:
            changes = dict(zip(("learning_rate", "truth"), map(float, name.split("-")), strict=True))
        student = self.options.model if name == "teacher" else self.small
        report = codec.plain(heal(student, self.original, HealConfig(steps=self.options.steps, **changes), out=out))
        words = ("loss", "steps", "seconds", "first_loss", "last_loss", "precision")
        self.found["heal"][name] = {word: report[word] for word in words}
        return out

    def score(self, name: str, folder: Path, suite: str = "") -> None:
        """Keep and print the scores of a folder over the original's, its size, and the machine that healed it."""
        given = argparse.Namespace(**{**vars(self.options), "suite": suite, "data": None}) if suite else self.options
        scores = scored(folder, 0, given, self.place / f"rows-{suite or 'suite'}")
        form = {**sizes_of(folder, self.original), **scores, "machine": machine()}
        self.found[suite or "forms"][name] = form
        whole = form["relative"]["all"]
        worst = "  ".join(f"worst {one} {form['worst'][one][0]} {form['worst'][one][1]:.3f}" for one in ("WQL", "MASE"))
        print(f"{name:24} WQL {whole['WQL']:.3f}  MASE {whole['MASE']:.3f}  {worst}  {suite}", flush=True)

    def int8(self, folder: Path) -> Path:
        """The same in int8."""
        from rankscope.compress import CompressOptions, compress

        out = folder.with_name(f"{folder.name}-int8")
        compress(folder, CompressOptions(storage="int8"), out=out)
        return out


def wanted(options: argparse.Namespace) -> list[str]:
    """Names of the models, in the order in which they are made."""
    if options.grid:
        return ["compressed", *(f"{rate:g}-{truth:g}" for rate in RATES for truth in TRUTHS)]
    names = ["compressed", *(f"healed-{seed}" for seed in range(options.seeds)), "teacher"]
    return [*names, *(f"without-{kind}" for kind in HELD_OUT if options.held_out)]


def held_out(generated: dict[str, Any]) -> dict[str, Any]:
    """WQL over the original's by kind, on its data set and on all kinds: compressed, healed, healed without it."""

    def scores(name: str, kind: str) -> dict[str, float]:
        form = generated[name]
        return {"WQL": form["ratios"]["WQL"][HELD_OUT[kind]], "all": form["relative"]["all"]["WQL"]}

    kinds = [kind for kind in HELD_OUT if f"without-{kind}" in generated]
    return {
        kind: {
            "small": scores("compressed", kind),
            "healed-0": scores("healed-0", kind),
            "without": scores(f"without-{kind}", kind),
        }
        for kind in kinds
    }


def main() -> None:
    """Compress, heal and score what is missing, and save after every model."""
    words = parser(__doc__, steps=1500, seeds=3)
    words.add_argument("--model", default="bundled-bolt")
    words.add_argument("--ratio", type=float, default=0.07, help="share of all parameters")
    one = words.add_mutually_exclusive_group()
    one.add_argument("--held-out", action="store_true", help="leave out kinds of series, too")
    one.add_argument("--grid", action="store_true", help="learning rates and shares of the truth instead")
    suite_options(words)
    words.add_argument("--max-series", type=int, help="of every task")
    options = words.parse_args()
    before, names = conditions(), wanted(options)
    used = ("benchmarks/accuracy.py", "benchmarks/scores.py", *HEALING)
    facts = origin("heal", *used, *SCORING, *COMPRESSION, *bundled(options.model))
    settings = {name: getattr(options, name) for name in ("model", "ratio", "steps", "max_series")}
    settings["suite"] = Path(options.suite).name
    found: dict[str, Any] = {"forms": {}, "heal": {}, "generated": {}}
    kept = earlier(options.out, {**facts, **settings}, *settings)
    found |= {part: kept[part] for part in found if part in kept}
    with tempfile.TemporaryDirectory() as place:
        study = Study(options, Path(place), found)
        for at, name in enumerate(names, 1):
            if name in found["forms"] or name in found["generated"]:
                continue
            study.measure(name)
            held = {"held_out": held_out(found["generated"])} if options.held_out else {}
            now = {"before": before, "after": conditions()}
            save({**facts, "conditions": now, **settings, "missing": len(names) - at, **found, **held}, options.out)


if __name__ == "__main__":
    main()
