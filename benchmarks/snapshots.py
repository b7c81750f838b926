"""Ranks, scores and compressibility of a model against how long it has learned, from the snapshots of a GPU run.

Snapshots are not kept in the repository: `benchmarks/gpu/bundled.py` writes them, a folder for each model.

    python benchmarks/snapshots.py gpu-out/bundled-bolt --suite dev.yaml --data DIR \
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


def rebuilt(run: Path, found: dict[str, Any], snapshot: Path | None, out: Path) -> None:
    """Write a snapshot, or the start (None), as a checkpoint in bfloat16."""
    import torch
    from safetensors.torch import load_file

    from rankscope.train import config_from_dict
    from rankscope.train.models import new_model

    config = config_from_dict(found["config"])
    torch.manual_seed(config.seed)
    model: Any = new_model(config)
    if snapshot is not None:
        weights = load_file(snapshot)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(weights[name])
    model.to(torch.bfloat16).save_pretrained(out)


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
    words.add_argument("run", type=Path, help="folder of run.json and the snapshots")
    suite_options(words)
    words.add_argument("--max-series", type=int, help="of every task")
    options = words.parse_args()
    found = json.loads((options.run / "run.json").read_text(encoding="utf-8"))
    before, rows = conditions(), []
    names = [
        "start",
        *(one for one in ("1-64", "1-16", "1-4", "end") if (options.run / f"{one}.safetensors").is_file()),
    ]
    for name in names:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / name
            file = options.run / f"{name}.safetensors"
            rebuilt(options.run, found, None if name == "start" else file, folder)
            row: dict[str, Any] = {"snapshot": name, "step": step_of(file) if name != "start" else 0}
            row |= {"series": row["step"] * found["config"]["batch_size"], "ranks": ranks(folder)}
            if name != "start":
                row["over_naive"] = over_naive(folder, options)
                mine = argparse.Namespace(**{**vars(options), "model": str(folder)})
                row["forms"] = {one: measure(one, form, mine, Path(place)) for one, form in FORMS.items()}
                for form in row["forms"].values():
                    form.pop("seeds", None)
            print(name, row["step"], {one: round(row["over_naive"][one], 3) for one in METRICS if "over_naive" in row})
        rows.append(row)
    training = {name: found["report"][name] for name in ("steps", "series", "seconds", "series_per_second", "warm_up")}
    gpu = {name: found[name] for name in ("device", "driver", "torch", "transformers")}
    result = {
        **origin("snapshots", "benchmarks/scores.py", "benchmarks/accuracy.py"),
        "conditions": {"before": before, "after": conditions()},
        "run": options.run.name,
        "eps": EPS,
        "suite": Path(options.suite).name,
        "max_series": options.max_series,
        "gpu": gpu,
        "training": training,
        "losses_by_kind": found["by_kind"],
        "rows": rows,
    }
    save(result, options.out)


def step_of(file: Path) -> int:
    """Optimiser steps after which a snapshot was taken."""
    from safetensors import safe_open

    with safe_open(file, "pt") as opened:
        return int(opened.metadata()["step"])


if __name__ == "__main__":
    main()
