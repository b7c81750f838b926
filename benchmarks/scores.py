"""Scores of a bundled model on a suite, beside seasonal naive's and, where there are any, a published model's.

    python benchmarks/scores.py bundled-bolt --suite backtest.yaml --data DIR --beside amazon/chronos-bolt-tiny \
        --out benchmarks/results/scores-bundled-bolt.json
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from digests import SCORING, bundled
from provenance import ROOT, conditions, origin, parser, save, suite_options

REFERENCE = "seasonal-naive"
METRICS = ("MASE", "WQL")
PUBLISHED = ("chronos-zero-shot", "chronos-in-domain")
"""Suites that carry published scores."""


def by_benchmark(summary: list[dict[str, Any]]) -> dict[str, Any]:
    """Relative scores with their intervals by benchmark; that of one benchmark alone is that of all, too."""
    found = {
        row["benchmark"]: {
            "datasets": row["datasets"],
            **{metric: row[f"relative_{metric}"] for metric in METRICS},
            **{f"{metric}_interval": row[f"{metric}_interval"] for metric in METRICS},
        }
        for row in summary
    }
    return {**found, "all": found.get("all", found[summary[-1]["benchmark"]])}


def by_dataset(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Scores of one model by data set, in the suite's order."""
    return {row["dataset"]: {"series": row["series"], **{metric: row[metric] for metric in METRICS}} for row in rows}


def geometric_means(mine: dict[str, Any], reference: dict[str, Any]) -> dict[str, float]:
    """Scores over those of a reference, averaged over the data sets of the first."""
    from rankscope_eval import geometric_mean

    return {metric: geometric_mean([mine[one][metric] / reference[one][metric] for one in mine]) for metric in METRICS}


def main() -> None:
    """Score, print and save."""
    words = parser(__doc__, seed=0)
    words.add_argument("model", help="a bundled one")
    suite_options(words)
    words.add_argument("--beside", help="model with published scores")
    options = words.parse_args()

    from rankscope.io import codec
    from rankscope_eval import Forecasting, evaluate, load_suite

    folder = ROOT / bundled(options.model)[0]
    trained = json.loads((folder / "pretrain.json").read_text(encoding="utf-8"))["report"]
    before, how = conditions(), Forecasting(seed=options.seed)
    report = codec.plain(evaluate([options.model], options.suite, how, data=options.data, baseline=REFERENCE))
    scores = {
        name: by_dataset([row for row in report["rows"] if row["model"] == name]) for name in (options.model, REFERENCE)
    }
    result = {
        **origin("scores", *SCORING, *bundled(options.model)),
        "conditions": {"before": before, "after": conditions()},
        "model": options.model,
        "suite": Path(options.suite).name,
        "training": {name: trained[name] for name in ("steps", "seconds", "parameters")},
        "reference": REFERENCE,
        "seed": options.seed,
        "num_samples": report["num_samples"],
        "benchmarks": {row["dataset"]: row["benchmark"] for row in report["rows"]},
        "scores": scores,
        "relative": by_benchmark([row for row in report["summary"] if row["model"] == options.model]),
    }
    if options.beside:
        known = [one for name in PUBLISHED for one in load_suite(name).published if one.model == options.beside]
        published = {one.dataset: {"MASE": one.MASE, "WQL": one.WQL} for one in known}
        result["published"] = {one: published[one] for one in scores[options.model]}
        result["published_relative"] = geometric_means(result["published"], scores[REFERENCE])
    for benchmark, row in result["relative"].items():
        print(f"{options.model} {benchmark}: MASE {row['MASE']:.3f}, WQL {row['WQL']:.3f} of {REFERENCE}")
    save(result, options.out)


if __name__ == "__main__":
    main()
