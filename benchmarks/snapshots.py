"""Ranks, scores and compressibility of a model against how long it has learned.

The run is one that kept snapshots: `keep_steps: [0, 46, 184, 736, 2942]` added to a copy of the recipe of
`bundled-bolt`, then `rankscope pretrain bolt.yaml --out bolt` (2.4 hours of two cores).

    python benchmarks/snapshots.py bolt --suite dev.yaml --data DIR \
        --out benchmarks/results/snapshots-bundled-bolt.json
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from accuracy import measure
from provenance import conditions, origin, parser, save, suite_options
from scores import METRICS, by_benchmark

RATIOS = (0.5, 0.25, 0.15, 0.1)
"""Of all parameters."""
FORMS = {str(ratio): {"ratio": ratio, "calibration": "mixture:1024"} for ratio in RATIOS}
EPS = 0.1


def ranks(folder: Path) -> dict[str, Any]:
    """Mean ε-rank, stable and effective rank by stack and role."""
    from rankscope import measure_spectrum, open_checkpoint

    frame = measure_spectrum(open_checkpoint(folder), eps=(EPS,)).to_frame()
    columns = {f"eps_rank@{EPS}": "rank", "stable_rank": "stable", "effective_rank": "effective"}
    means = frame.groupby(["stack", "role"])[list(columns)].mean()
    return {
        f"{stack} {role}": {columns[name]: float(value) for name, value in row.items()}
        for (stack, role), row in means.iterrows()
    }


def over_naive(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Scores over seasonal naive's."""
    from rankscope.io import codec
    from rankscope_eval import Forecasting, evaluate

    given = {"data": options.data, "max_series": options.max_series, "baseline": "seasonal-naive"}
    report = codec.plain(evaluate([str(folder)], options.suite, Forecasting(seed=0), **given))
    return by_benchmark([row for row in report["summary"] if row["model"] == str(folder)])["all"]


def main() -> None:
    """Measure all snapshots and save."""
    words = parser(__doc__, seeds=1)
    words.add_argument("run", type=Path, help="folder that `rankscope pretrain` wrote, with snapshots in kept/")
    suite_options(words)
    words.add_argument("--max-series", type=int, help="of every task")
    options = words.parse_args()
    found = json.loads((options.run / "pretrain.json").read_text(encoding="utf-8"))
    before, rows = conditions(), []
    for step, folder in sorted((int(one.name.removeprefix("step-")), one) for one in options.run.glob("kept/step-*")):
        row: dict[str, Any] = {"step": step, "series": step * found["config"]["batch_size"], "ranks": ranks(folder)}
        if step:
            row["over_naive"] = over_naive(folder, options)
            mine = argparse.Namespace(**{**vars(options), "model": str(folder)})
            with tempfile.TemporaryDirectory() as place:
                row["forms"] = {one: measure(one, form, mine, Path(place)) for one, form in FORMS.items()}
            for form in row["forms"].values():
                form.pop("seeds", None)
            print(step, {one: round(row["over_naive"][one], 3) for one in METRICS}, flush=True)
        rows.append(row)
    result = {
        **origin("snapshots", "benchmarks/scores.py", "benchmarks/accuracy.py"),
        "conditions": {"before": before, "after": conditions()},
        "config": found["config"],
        "eps": EPS,
        "suite": Path(options.suite).name,
        "max_series": options.max_series,
        "rows": rows,
    }
    save(result, options.out)


if __name__ == "__main__":
    main()
