"""Accuracy of compressed models over that of the original: a model in several forms, on a suite.

Every form of a set is written, scored and compared with the original of the same seed. Sizes are shares of the whole
model: parameters, and bytes of the weights file.

    python benchmarks/accuracy.py headline bundled-bolt --out benchmarks/results/headline-bundled-bolt.json
    python benchmarks/accuracy.py storage bundled --seeds 3 --out benchmarks/results/storage-accuracy-bundled.json
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from digests import COMPRESSION, SCORING, bundled
from provenance import conditions, origin, parser, save, suite_options
from scores import METRICS, by_benchmark

from rankscope.compress import Budget

Form = dict[str, Any]

_QUARTER: Form = {"method": "joint", "attention_ratio": 0.25}
_HEADLINE: Form = {"ratio": 0.3, "calibration": "mixture:1024"}
_METHODS = ("joint", "whitened")
_REFINED = (("attention_ratio", 0.15), ("attention_ratio", 0.075), ("ratio", 0.15), ("ratio", 0.1), ("ratio", 0.07))
_ALLOCATIONS = ("uniform-ratio", "uniform-eps", "schedule", "energy", "sensitivity")
SETS: dict[str, dict[str, Form]] = {
    "headline": {"float": _HEADLINE, "int8": {**_HEADLINE, "storage": "int8"}},
    "storage": {"int8": {"storage": "int8"}, "joint": _QUARTER, "joint-int8": {**_QUARTER, "storage": "int8"}},
    "allocation": {
        f"{method}-{allocation}-{ratio}": {"method": method, "allocation": allocation, "attention_ratio": ratio}
        for method in _METHODS
        for allocation in _ALLOCATIONS
        for ratio in (0.25, 0.15)
    },
    "refine": {
        f"{kind}-{size}-{refine}": {"method": "joint", kind: size, "refine": refine, "calibration": "mixture:1024"}
        for kind, size in _REFINED
        for refine in (False, True)
    },
    "together": {
        f"{method}-{size}": {"method": method, "ratio": size, "calibration": "mixture:1024"}
        for size in (0.3, 0.15, 0.1, 0.07, 0.05)
        for method in ("joint", "joint+stream")
    },
    "depth": {
        f"{stack}-{layers}-{refine}": {"budget": Budget("layers", layers), "sites": stack, "refine": refine}
        for stack in ("encoder", "decoder")
        for layers in (3, 2, 1)
        for refine in (False, True)
    },
}
"""Forms by name, as options of `rankscope compress`."""


def scored(folder: Path, seed: int, options: argparse.Namespace, kept: Path) -> dict[str, Any]:
    """Scores over the original's by benchmark and data set, and the worst ones; the original is scored once."""
    from rankscope.io import codec
    from rankscope_eval import Forecasting, evaluate

    report = codec.plain(
        evaluate(
            [str(folder)],
            options.suite,
            Forecasting(seed=seed),
            data=options.data,
            max_series=options.max_series,
            baseline=options.model,
            kept=kept,
            resume=True,
        )
    )
    mine, base = ({r["dataset"]: r for r in report["rows"] if r["model"] == m} for m in (str(folder), options.model))
    ratios = {metric: {one: mine[one][metric] / base[one][metric] for one in mine} for metric in METRICS}
    worst = {metric: max(ratios[metric].items(), key=lambda one: one[1]) for metric in METRICS}
    return {"relative": by_benchmark(report["summary"]), "worst": worst, "ratios": ratios}


def times_over(
    folders: Sequence[str | Path], original: str | Path, batches: Sequence[int], rounds: int
) -> dict[str, Form]:
    """Time (spread over rounds) and peak memory over the original's by batch, in turns, in the runtime of `auto`."""
    from rankscope_eval.bench.case import Case, Settings
    from rankscope_eval.bench.running import run_bench

    settings, baseline = Settings(batches=tuple(batches), rounds=rounds), Case(str(original))
    report = run_bench([baseline, *(Case(str(one)) for one in folders)], settings, baseline=baseline)
    model = {row.label: row.model for row in report.rows}
    found: dict[str, Form] = {str(one): {"time": {}, "memory": {}} for one in folders}
    for ratio in report.ratios:
        if model[ratio.label] in found:
            found[model[ratio.label]]["time"][f"{ratio.batch}"] = asdict(ratio.seconds)
            found[model[ratio.label]]["memory"][f"{ratio.batch}"] = ratio.peak_bytes
    return found


def sizes_of(folder: Path, original: Any) -> dict[str, float]:
    """Shares of the original's parameters and bytes."""
    from rankscope import open_checkpoint

    small = open_checkpoint(folder)
    return {"parameters": small.parameters / original.parameters, "bytes": small.bytes / original.bytes}


def measure(name: str, form: Form, options: argparse.Namespace, place: Path) -> dict[str, Any]:
    """Write one form and score it with every seed; the reason where its size is out of reach."""
    from rankscope import open_checkpoint
    from rankscope.compress import CompressOptions, compress
    from rankscope.errors import OptionError

    original = open_checkpoint(options.model)
    folder = place / name
    try:
        compress(original, CompressOptions(**form), out=folder)
    except OptionError as error:
        print(f"{name:30} {error}", flush=True)
        return {"out_of_reach": str(error)}
    sizes = sizes_of(folder, original)
    found = [scored(folder, seed, options, place / "rows") for seed in range(options.seeds)]
    whole = found[0]["relative"]["all"]
    print(f"{name:30} {sizes['parameters']:.3f}  MASE {whole['MASE']:.3f}  WQL {whole['WQL']:.3f}", flush=True)
    return {**sizes, **found[0]["relative"]["all"], "worst": found[0]["worst"], "seeds": found}


def main() -> None:
    """Measure all forms of a set and save."""
    words = parser(__doc__, seeds=1)
    words.add_argument("set", choices=SETS)
    words.add_argument("model")
    suite_options(words)
    words.add_argument("--max-series", type=int, help="of every task")
    options = words.parse_args()
    before = conditions()
    with tempfile.TemporaryDirectory() as place:
        forms = {name: measure(name, form, options, Path(place)) for name, form in SETS[options.set].items()}
    result = {
        **origin("accuracy", "benchmarks/scores.py", *SCORING, *COMPRESSION, *bundled(options.model)),
        "conditions": {"before": before, "after": conditions()},
        "model": options.model,
        "suite": Path(options.suite).name,
        "max_series": options.max_series,
        "forms": forms,
    }
    save(result, options.out)


if __name__ == "__main__":
    main()
