"""Time, memory and scores of the trained models: stock and fast, compressed, and beside local models.

Every checkpoint is scored in the runtime and number format it is timed in, on the first series of every task of a
suite, relative to seasonal naive; then all are timed in turns: at the context they are scored at, 512 values or as many
as the model reads, and once more at the shortest of these contexts, the same for all.

    python benchmarks/peers.py --suite dev.yaml --data DIR --out benchmarks/results/peers.json
    python benchmarks/peers.py --scores benchmarks/results/peers.json    # times alone, of the same models
"""

from __future__ import annotations

import argparse
import json
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
RATIO = 0.15


def cases(folder: Path) -> list[str]:
    """Compress the bundled models; what is compared, the baseline first."""
    from rankscope.compress import CompressOptions, compress

    made = {name: folder / name for name in ("bundled-0.15", "bundled-int8", "bundled-bolt-0.15")}
    compress("bundled", CompressOptions(method="joint", attention_ratio=RATIO), out=made["bundled-0.15"])
    compress("bundled", CompressOptions(storage="int8"), out=made["bundled-int8"])
    compress("bundled-bolt", CompressOptions(method="joint", attention_ratio=RATIO), out=made["bundled-bolt-0.15"])
    t5 = [f"bundled:{how}" for how in ("stock:float32", "stock:bfloat16", "fast:float32", "fast:bfloat16")]
    t5 += [f"{made['bundled-0.15']}:fast:float32", f"{made['bundled-int8']}:fast:float32"]
    bolt = ["bundled-bolt:stock:float32", "bundled-bolt:fast:float32", f"{made['bundled-bolt-0.15']}:fast:float32"]
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
    words.add_argument(
        "--scores", type=Path, metavar="FILE", help="an earlier result of the same models: take its scores"
    )
    words.add_argument("--local", default=",".join(LOCAL), help="models that are fitted series by series")
    options = words.parse_args()

    from rankscope_eval.bench import Settings, run_bench

    before, told = conditions(), {}
    if options.scores is not None:
        told = json.loads(options.scores.read_text(encoding="utf-8"))
    earlier = {row["label"]: row for row in told.get("rows", ())}
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        names = [*cases(Path(temporary)), *options.local.split(",")]
        scores = {}
        for text in names:
            label = text.replace(f"{temporary}/", "")
            if options.scores is not None:
                scores[text] = {name: earlier[label][name] for name in SCORES if name in earlier[label]}
            else:
                scores[text] = {"WQL": 1.0, "MASE": 1.0} if text == REFERENCE else scored(text, options)
            print(f"{label:32} {scores[text]}", flush=True)
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
        "suite": told.get("suite", Path(options.suite).name),
        "scores_from": {name: told[name] for name in ("date", "commit")} if told else None,
        "max_series": told.get("max_series", options.max_series),
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
