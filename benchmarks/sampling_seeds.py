"""Spread of a relative score between sampling seeds: how many a table of sampled forecasts needs.

Scores a model and its compression by ``joint`` with each of several seeds, as `rankscope table2` does with one.

    python benchmarks/sampling_seeds.py bundled --suite dev.yaml --data DIR --out benchmarks/results/sampling-seeds.json
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import numpy as np
from digests import COMPRESSION, SCORING, bundled
from provenance import conditions, origin, parser, save, suite_options

METRICS = ("WQL", "MASE")
AIM = 0.01
"""Half the width of a 95 % interval that sampling alone may give a relative score."""


def main() -> None:
    """Score with every seed, print and save."""
    words = parser(__doc__)
    words.add_argument("model", help="a bundled one")
    suite_options(words)
    words.add_argument("--max-series", type=int, default=20)
    words.add_argument("--seeds", type=int, default=8)
    words.add_argument("--ratio", type=float, default=0.15)
    options = words.parse_args()

    from rankscope.compress import CompressOptions, compress
    from rankscope_eval import Forecasting, evaluate, read_suite

    before = conditions()
    suite = read_suite(options.suite, options.data, max_series=options.max_series)
    found: dict[str, list[float]] = {metric: [] for metric in METRICS}
    alone: dict[str, list[float]] = {metric: [] for metric in METRICS}
    with tempfile.TemporaryDirectory() as folder:
        small = str(Path(folder) / "small")
        compress(options.model, CompressOptions(attention_ratio=options.ratio, method="joint"), out=small)
        for seed in range(options.seeds):
            report = evaluate([small], suite, Forecasting(seed=seed), baseline=options.model)
            for metric in METRICS:
                found[metric].append(getattr(report.summary[-1], f"relative_{metric}"))
                scores = [getattr(row, metric) for row in report.rows if row.model == options.model]
                alone[metric].append(float(np.exp(np.mean(np.log(scores)))))
            print(seed, {metric: round(values[-1], 4) for metric, values in found.items()}, flush=True)
    deviation = {metric: statistics.stdev(np.log(values)) for metric, values in found.items()}
    result = {
        **origin("sampling_seeds", *SCORING, *COMPRESSION, *bundled(options.model)),
        "conditions": {"before": before, "after": conditions()},
        "model": options.model,
        "datasets": len(suite.suite.tasks),
        "max_series": options.max_series,
        "relative": found,
        "original": alone,
        "deviation": deviation,
        "original_deviation": {metric: statistics.stdev(np.log(values)) for metric, values in alone.items()},
        "needed": {metric: int(np.ceil((1.96 * one / AIM) ** 2)) for metric, one in deviation.items()},
    }
    print({name: result[name] for name in ("deviation", "original_deviation", "needed")})
    save(result, options.out)


if __name__ == "__main__":
    main()
