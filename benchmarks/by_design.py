"""Low-rank designs against the stock network at equal steps: size, scores, time and memory (the paper's Table 3).

    rankscope sweep benchmarks/by_design.yaml --out by-design/
    python benchmarks/by_design.py by-design/ --suite backtest.yaml --data DIR

Times are of one ``predict_quantiles`` call per batch, interleaved over rounds; ratios are medians over rounds of a
model's time / the baseline's time in the same round.
"""

from __future__ import annotations

import json
from pathlib import Path

from provenance import conditions, origin, parser, save, spread

BASELINE = "baseline"
PAPER = {
    "r3": {"r0": 3, "alpha": 0.27, "size": 0.075, "time": 0.346, "space": 0.186, "WQL": 1.034, "MASE": 0.988},
    "r5": {"r0": 5, "alpha": 0.35, "size": 0.150, "time": 0.398, "space": 0.312, "WQL": 1.048, "MASE": 0.982},
    "r7": {"r0": 7, "alpha": 0.40, "size": 0.250, "time": 0.494, "space": 0.440, "WQL": 1.021, "MASE": 0.949},
}
"""Table 3 of the paper (Chronos-T5 base, trained from scratch, in-domain scores), relative to its baseline."""


def attention_numbers(folder: Path) -> int:
    """Return the stored parameters of a checkpoint's attention matrices."""
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", "pt") as file:
        names = [name for name in list(file.keys()) if "Attention" in name and "relative_attention_bias" not in name]
        return sum(file.get_tensor(name).numel() for name in names)


def main() -> None:
    """Measure, print the table and write the JSON file."""
    options = parser(__doc__, rounds=15, batch=32, context=512)
    options.add_argument("sweep", type=Path, help="folder that `rankscope sweep` wrote")
    options.add_argument("--suite", default="embedded")
    options.add_argument("--data")
    given = options.parse_args()

    import torch

    from rankscope import load_pipeline
    from rankscope.io import codec
    from rankscope_eval import evaluate
    from rankscope_eval.bench.turns import alternate, timed

    folders = {
        path.name: path for path in sorted((given.sweep / "points").iterdir()) if (path / "config.json").exists()
    }
    series = torch.randn(given.batch, given.context, generator=torch.Generator().manual_seed(0)).cumsum(1)
    works = {name: load_pipeline(str(path)) for name, path in folders.items()}
    turns = {name: timed(lambda p=p: p.predict_quantiles(series, prediction_length=64)) for name, p in works.items()}
    times = alternate(turns, given.rounds)
    base = folders[BASELINE]
    report = evaluate([str(p) for p in folders.values()], suite=given.suite, data=given.data, baseline=str(base))
    summary = {row["model"]: row for row in codec.plain(report)["summary"] if row["benchmark"] == "all"}
    rows = []
    for name, folder in folders.items():
        ratios = [mine / reference for mine, reference in zip(times[name], times[BASELINE], strict=True)]
        weights = (folder / "model.safetensors").stat().st_size
        rows.append(
            {
                "name": name,
                "steps": json.loads((folder / "pretrain.json").read_text(encoding="utf-8"))["report"]["steps"],
                "size": attention_numbers(folder) / attention_numbers(base),
                "weight_bytes": weights,
                "space": weights / (base / "model.safetensors").stat().st_size,
                "seconds": spread(times[name]),
                "time": spread(ratios),
                "WQL": summary[str(folder)]["relative_WQL"],
                "MASE": summary[str(folder)]["relative_MASE"],
                "paper": PAPER.get(name),
            }
        )
    print("point     size  space  time (min–max)        WQL   MASE  | paper: size  time   space  WQL    MASE")
    for row in rows:
        paper = row["paper"]
        beside = "  ".join(f"{paper[k]:.3f}" for k in ("size", "time", "space", "WQL", "MASE")) if paper else "1"
        span = f"{row['time']['median']:.2f} ({row['time']['min']:.2f}–{row['time']['max']:.2f})"
        mine = f"{row['size']:.3f} {row['space']:.3f}  {span:20} {row['WQL']:.3f}  {row['MASE']:.3f}"
        print(f"{row['name']:9} {mine} | {beside}")
    found = {
        **origin("by_design", "src/rankscope", "eval/rankscope_eval"),
        "conditions": conditions(),
        "suite": str(given.suite),
        "batch": given.batch,
        "context": given.context,
        "rows": rows,
    }
    save(found, given.out)


if __name__ == "__main__":
    main()
