"""Low-rank designs against the stock network at equal steps: size, scores, time and memory (the paper's Table 3).

    python benchmarks/by_design.py by-design/ --suite backtest.yaml --data DIR
    python benchmarks/by_design.py      # times and sizes alone, of random weights in the same shapes

Trains what `rankscope sweep benchmarks/by_design.yaml --out by-design/` has not trained yet.
Times are of one ``predict_quantiles`` call per batch, interleaved over rounds; ratios are medians over rounds of a
model's time / the baseline's time in the same round.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from digests import SCORING
from provenance import conditions, origin, parser, save, spread
from shapes import write_shape

BASELINE = "baseline"
USED = ("src/rankscope/train", *SCORING)
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


def shapes(folder: Path) -> dict[str, Path]:
    """Write the networks of the sweep with random weights."""
    from rankscope.train.rank_schedule import RankDesign

    designs = {name: RankDesign(row["r0"], row["alpha"]) for name, row in PAPER.items()}
    return {
        name: write_shape(folder / name, "chronos-bolt", "tiny", design=design)
        for name, design in {BASELINE: None, **designs}.items()
    }


def timed_forecasts(folders: dict[str, Path], batch: int, context: int, rounds: int) -> dict[str, tuple[float, ...]]:
    """Seconds of a forecast of every model, one number per round."""
    import torch

    from rankscope import load_pipeline
    from rankscope_eval.bench.turns import alternate, timed

    series = torch.randn(batch, context, generator=torch.Generator().manual_seed(0)).cumsum(1)
    works = {name: load_pipeline(str(path)) for name, path in folders.items()}
    turns = {name: timed(lambda p=p: p.predict_quantiles(series, prediction_length=64)) for name, p in works.items()}
    return alternate(turns, rounds)


def scores(folders: dict[str, Path], suite: str, data: str | None) -> dict[str, dict[str, Any]]:
    """WQL and MASE relative to the baseline, and steps of training."""
    from rankscope.io import codec
    from rankscope_eval import evaluate

    report = evaluate([str(p) for p in folders.values()], suite=suite, data=data, baseline=str(folders[BASELINE]))
    summary = {row["model"]: row for row in codec.plain(report)["summary"] if row["benchmark"] == "all"}
    return {
        name: {
            "steps": json.loads((folder / "pretrain.json").read_text(encoding="utf-8"))["report"]["steps"],
            **{metric: summary[str(folder)][f"relative_{metric}"] for metric in ("WQL", "MASE")},
        }
        for name, folder in folders.items()
    }


def main() -> None:
    """Measure, print the table and write the JSON file."""
    options = parser(__doc__, rounds=15, batch=32, context=512)
    options.add_argument("sweep", type=Path, nargs="?", help="folder that `rankscope sweep` wrote")
    options.add_argument("--suite", default="embedded")
    options.add_argument("--data")
    given = options.parse_args()
    before = conditions()
    with tempfile.TemporaryDirectory() as temporary:
        if given.sweep is None:
            folders, scored = shapes(Path(temporary)), {}
        else:
            recipe = Path(__file__).with_suffix(".yaml")
            subprocess.run(["rankscope", "sweep", str(recipe), "--out", str(given.sweep)], check=True)
            points = sorted((given.sweep / "points").iterdir())
            folders = {path.name: path for path in points if (path / "config.json").exists()}
            scored = scores(folders, given.suite, given.data)
        times = timed_forecasts(folders, given.batch, given.context, given.rounds)
        base, rows = folders[BASELINE], []
        for name, folder in folders.items():
            ratios = [mine / reference for mine, reference in zip(times[name], times[BASELINE], strict=True)]
            weights = (folder / "model.safetensors").stat().st_size
            rows.append(
                {
                    "name": name,
                    "size": attention_numbers(folder) / attention_numbers(base),
                    "weight_bytes": weights,
                    "space": weights / (base / "model.safetensors").stat().st_size,
                    "seconds": spread(times[name]),
                    "time": spread(ratios),
                    **scored.get(name, {}),
                    "paper": PAPER.get(name),
                }
            )
    print("point     size  space  time (min–max)        WQL   MASE  | paper: size  time   space  WQL    MASE")
    for row in rows:
        paper = row["paper"]
        beside = "  ".join(f"{paper[k]:.3f}" for k in ("size", "time", "space", "WQL", "MASE")) if paper else "1"
        span = f"{row['time']['median']:.2f} ({row['time']['min']:.2f}–{row['time']['max']:.2f})"
        said = "  ".join(f"{row[metric]:.3f}" if metric in row else "    –" for metric in ("WQL", "MASE"))
        mine = f"{row['size']:.3f} {row['space']:.3f}  {span:20} {said}"
        print(f"{row['name']:9} {mine} | {beside}")
    found = {
        **origin("by_design", "benchmarks/by_design.yaml", "benchmarks/shapes.py", *USED),
        "conditions": {"before": before, "after": conditions()},
        "suite": Path(given.suite).name if scored else None,
        "batch": given.batch,
        "context": given.context,
        "rows": rows,
    }
    save(found, given.out)


if __name__ == "__main__":
    main()
