"""Time, memory and scores of the trained models: stock and fast, compressed, and beside local models.

Every checkpoint is scored in the runtime and number format it is timed in, on the first series of every task of a
suite, relative to seasonal naive; then all are timed in turns: at 512 values or as many as the model reads, and once
more at the shortest of these contexts, the same for all. Local models are scored on up to 2,500 values where a series
has them, and timed on 512.

    python benchmarks/peers.py --suite dev.yaml --data DIR --out figures/rankscope_paper/figures/data/peers.json
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from digests import COMPRESSION, SCORING, bundled
from provenance import conditions, origin, parser, save, suite_options

LOCAL = ("naive", "seasonal-naive", "auto-theta", "auto-ets")
REFERENCE = "seasonal-naive"
SCORES = {name: f"relative_{name}" for name in ("WQL", "MASE")}
SCORES |= {f"{name}_interval": f"{name}_interval" for name in ("WQL", "MASE")}
RATIOS = {"bundled": 0.3, "bundled-bolt": 0.15}
"""Share of all parameters that the compressed models keep."""


def cases(folder: Path) -> list[str]:
    """Compress the bundled models; what is compared, the baseline first."""
    from rankscope.compress import CompressOptions, compress

    small = {name: folder / f"{name}-ratio-{ratio:g}" for name, ratio in RATIOS.items()}
    for name, ratio in RATIOS.items():
        compress(name, CompressOptions(ratio=ratio), out=small[name])
    int8 = folder / "bundled-int8"
    compress("bundled", CompressOptions(storage="int8"), out=int8)
    t5 = [f"bundled:{how}" for how in ("stock:float32", "stock:bfloat16", "fast:float32", "fast:bfloat16")]
    t5 += [f"{small['bundled']}:fast:float32", f"{int8}:fast:float32"]
    bolt = [
        f"{model}:float32" for model in ("bundled-bolt:stock", "bundled-bolt:fast", f"{small['bundled-bolt']}:fast")
    ]
    return [*t5, *bolt]


def scored(text: str, options: argparse.Namespace) -> dict[str, Any]:
    """WQL and MASE of a case over those of seasonal naive, with 95 % intervals."""
    from rankscope.io import codec
    from rankscope_eval import Forecasting, evaluate
    from rankscope_eval.bench import read_case

    case = read_case(text)
    how = Forecasting() if case.runtime == "local" else Forecasting(runtime=case.runtime, dtype=case.dtype)
    report = evaluate(
        [case.model], options.suite, how, data=options.data, max_series=options.max_series, baseline=REFERENCE
    )
    row = [one for one in codec.plain(report)["summary"] if one["model"] == case.model][-1]  # all data sets
    return {name: row[key] for name, key in SCORES.items()}


def main() -> None:
    """Measure, print and save."""
    words = parser(__doc__, batch=8, rounds=3)
    suite_options(words)
    words.add_argument("--max-series", type=int, default=10, help="of every task")
    options = words.parse_args()

    from rankscope_eval.bench import Settings, run_bench

    before = conditions()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        names = [*cases(Path(temporary)), *LOCAL]
        scores = {}
        for text in names:
            scores[text] = {"WQL": 1.0, "MASE": 1.0} if text == REFERENCE else scored(text, options)
            print(f"{text.replace(f'{temporary}/', ''):32} {scores[text]}", flush=True)
        report = run_bench(names, Settings((options.batch,), rounds=options.rounds))
        shortest = min(row.context for row in report.rows)
        common = run_bench(names, Settings((options.batch,), rounds=options.rounds, context=shortest))
        same = {row.label: row for row in common.rows}
        over_common = {one.label: one for one in common.ratios}
        over = {one.label: one for one in report.ratios}
        labels = {row.label: text for row in report.rows for text in names if row.label in (text, f"{text}:local")}
        for row in report.rows:
            rows.append(
                {
                    "label": row.label.replace(f"{temporary}/", "").removesuffix(":local"),
                    "milliseconds_per_series": 1000 * row.seconds.median / row.batch,
                    "least": 1000 * row.seconds.min / row.batch,
                    "most": 1000 * row.seconds.max / row.batch,
                    "context": row.context,
                    "over_baseline": asdict(over[row.label].seconds),
                    "common_context": {
                        "milliseconds_per_series": 1000 * same[row.label].seconds.median / row.batch,
                        "over_baseline": asdict(over_common[row.label].seconds),
                        "peak_bytes": same[row.label].peak_bytes,
                    },
                    "peak_bytes": row.peak_bytes,
                    "weight_bytes": row.weight_bytes,
                    **scores[labels[row.label]],
                }
            )
        lost = [*report.failures, *common.failures]
        failures = [f"{one.label.replace(temporary + '/', '')}: {one.reason}" for one in lost]
    for each in rows:
        print(
            f"| {each['label']} | {each['context']} | {each['milliseconds_per_series']:.2f} "
            f"| {each['common_context']['milliseconds_per_series']:.2f} | {each['peak_bytes'] / 1e6:.0f} "
            f"| {each['WQL']:.3f} | {each['MASE']:.3f} |"
        )
    found = {
        **origin("peers", "eval/rankscope_eval/bench", *SCORING, *COMPRESSION, *bundled("bundled", "bundled-bolt")),
        "conditions": {"before": before, "after": conditions()},
        "suite": Path(options.suite).name,
        "max_series": options.max_series,
        "reference": REFERENCE,
        "batch": options.batch,
        "common_context": shortest,
        "horizon": report.rows[0].horizon,
        "num_samples": 20,
        "rounds": report.rounds,
        "rows": rows,
        "failures": failures,
    }
    save(found, options.out)


if __name__ == "__main__":
    main()
