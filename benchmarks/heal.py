"""Healing of a compressed model, with its controls: the teacher healed for as long, and a kind of series held out.

The model is cut to a share of all parameters and healed with several seeds; beside it stand the model before, the
healed one in int8, and the original after the same steps with itself for a teacher, so that what healing adds is told
from what any further training adds. With --held-out one kind of generated series is then left out of healing, and
models healed with and without it are scored on that kind.

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
from pathlib import Path
from typing import Any

from accuracy import scored, sizes_of
from digests import COMPRESSION, HEALING, SCORING, bundled
from provenance import conditions, origin, parser, save, suite_options

RATES = (2e-4, 4e-4, 8e-4)
TRUTHS = (0.0, 0.5, 1.0)
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
    """Healings of one compressed model in one folder."""

    def __init__(self, options: argparse.Namespace, place: Path) -> None:
        from rankscope import open_checkpoint
        from rankscope.compress import CompressOptions, compress

        self.options, self.place = options, place
        self.original = open_checkpoint(options.model)
        self.small = place / "small"
        compress(self.original, CompressOptions(ratio=options.ratio, calibration=CALIBRATION), out=self.small)

    def healed(self, name: str, *, student: str | Path | None = None, **changes: Any) -> tuple[Path, dict[str, Any]]:
        """Heal, and return the folder and what the report says of it."""
        from rankscope.compress.heal import HealConfig, heal
        from rankscope.io import codec

        out = self.place / name
        config = HealConfig(**{"steps": self.options.steps, **changes})
        report = codec.plain(heal(student or self.small, self.original, config, out=out))
        words = ("loss", "steps", "seconds", "first_loss", "last_loss", "precision")
        return out, {word: report[word] for word in words}

    def score(self, folder: Path, suite: str | None = None) -> dict[str, Any]:
        """Scores of a folder over the original's, on the suite of the options or another, and its size."""
        given = self.options
        if suite is not None:
            given = argparse.Namespace(**{**vars(given), "suite": suite, "data": None})
        return {**sizes_of(folder, self.original), **scored(folder, 0, given, self.place / f"rows-{suite or 'suite'}")}

    def int8(self, folder: Path) -> Path:
        """The same in int8."""
        from rankscope.compress import CompressOptions, compress

        out = folder.with_name(f"{folder.name}-int8")
        compress(folder, CompressOptions(storage="int8"), out=out)
        return out


def show(name: str, form: dict[str, Any]) -> dict[str, Any]:
    """Print a form's scores and return it."""
    whole = form["relative"]["all"]
    worst = "  ".join(f"worst {one} {form['worst'][one][0]} {form['worst'][one][1]:.3f}" for one in ("WQL", "MASE"))
    print(f"{name:24} WQL {whole['WQL']:.3f}  MASE {whole['MASE']:.3f}  {worst}", flush=True)
    return form


def controlled(study: Study) -> dict[str, Any]:
    """Scores before and after, with both controls."""
    options = study.options
    forms = {"compressed": show("compressed", study.score(study.small))}
    reports = {}
    for seed in range(options.seeds):
        folder, reports[f"healed-{seed}"] = study.healed(f"healed-{seed}", seed=seed)
        forms[f"healed-{seed}"] = show(f"healed, seed {seed}", study.score(folder))
    forms["int8"] = show("healed, int8", study.score(study.int8(study.place / "healed-0")))
    folder, reports["teacher"] = study.healed("teacher", student=options.model)
    forms["teacher"] = show("teacher, as long", study.score(folder))
    return {"forms": forms, "heal": reports, **(held_out(study, reports) if options.held_out else {})}


def held_out(study: Study, reports: dict[str, Any]) -> dict[str, Any]:
    """Scores on single kinds of generated series, of models that were healed with and without them."""
    found = {}
    full = {name: study.score(study.place / name, "generated") for name in ("small", "healed-0")}
    for kind in HELD_OUT:
        with without(kind):
            folder, reports[f"without-{kind}"] = study.healed(f"without-{kind}")
        found[kind] = {**full, "without": study.score(folder, "generated")}
    return {"held_out": {kind: of_kind(kind, found[kind]) for kind in found}}


def of_kind(kind: str, scores: dict[str, Any]) -> dict[str, Any]:
    """WQL over the original's on the data set of a kind and on all kinds: compressed, healed, healed without it."""
    found = {
        name: {"WQL": form["ratios"]["WQL"][HELD_OUT[kind]], "all": form["relative"]["all"]["WQL"]}
        for name, form in scores.items()
    }
    print(f"held out {kind:16} " + "  ".join(f"{name} {one['WQL']:.3f}" for name, one in found.items()), flush=True)
    return found


def grid(study: Study) -> dict[str, Any]:
    """Scores by learning rate and share of the truth in the loss."""
    forms = {"compressed": show("compressed", study.score(study.small))}
    for rate in RATES:
        for truth in TRUTHS:
            name = f"{rate:g}-{truth:g}"
            folder, _ = study.healed(name, learning_rate=rate, truth=truth)
            forms[name] = show(f"rate {rate:g}, truth {truth:g}", study.score(folder))
    return {"forms": forms}


def main() -> None:
    """Compress, heal, score and save."""
    words = parser(__doc__, steps=1500, seeds=3)
    words.add_argument("--model", default="bundled-bolt")
    words.add_argument("--ratio", type=float, default=0.07, help="share of all parameters")
    one = words.add_mutually_exclusive_group()
    one.add_argument("--held-out", action="store_true", help="leave out kinds of series, too")
    one.add_argument("--grid", action="store_true", help="learning rates and shares of the truth instead")
    suite_options(words)
    words.add_argument("--max-series", type=int, help="of every task")
    options = words.parse_args()
    before = conditions()
    with tempfile.TemporaryDirectory() as place:
        found = (grid if options.grid else controlled)(Study(options, Path(place)))
    used = ("benchmarks/accuracy.py", "benchmarks/scores.py", *HEALING)
    result = {
        **origin("heal", *used, *SCORING, *COMPRESSION, *bundled(options.model)),
        "conditions": {"before": before, "after": conditions()},
        "model": options.model,
        "ratio": options.ratio,
        "steps": options.steps,
        "suite": Path(options.suite).name,
        "max_series": options.max_series,
        **found,
    }
    save(result, options.out)


if __name__ == "__main__":
    main()
