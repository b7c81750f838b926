"""Item 9: sparse-layered transformers on a GPU: both protocols, five seeds, every ablation, and speed in turns.

Several runs share the GPU: one alone leaves most of it idle. Stopped, it goes on where it was.

    DATA=PATH/ETTh python benchmarks/gpu/slt.py                 # a CUDA machine, about an hour
    python benchmarks/gpu/slt.py --rehearse                     # a made table on a CPU, two minutes
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from training import OUT, REHEARSAL, ROOT, device, record

sys.path.insert(0, str(ROOT / "benchmarks"))  # before this folder, which has a slt.py, too
SEEDS = 5
TOGETHER = 6
"""Runs that share a GPU."""


def study(data: Path, tables: list[str], **options: Any) -> list[dict[str, Any]]:
    """Train every cell that is missing: rows of the table and of the comparisons."""
    from rankscope.lab.slt.ablations import ABLATIONS
    from rankscope.lab.slt.models import MAIN
    from rankscope.lab.slt.report import study_report
    from rankscope.lab.slt.runs import Place, run_cells
    from rankscope.lab.slt.study import settings_of, study_cells
    from rankscope_cli.progress import progress_lines

    seeds = 1 if REHEARSAL else SEEDS
    settings = settings_of(MAIN, () if REHEARSAL else tuple(ABLATIONS))
    cells = study_cells(settings, tables, ["released", "field"], seeds, **options)
    jobs = min(TOGETHER, os.cpu_count() or 1) if device() == "cuda" else 1
    with progress_lines("slt") as progress:
        results = run_cells(cells, data, OUT / "slt", place=Place(jobs=jobs, device=device()), progress=progress)
    report = study_report(results, tuple(ABLATIONS)).to_json()
    rows = [
        {
            "table": row["dataset"],
            "protocol": row["protocol"],
            "model": row["model"],
            "mse": row["mse"]["mean"],
            "std": row["mse"]["std"] or float("nan"),
            "runs": row["mse"]["runs"],
            "diverged": row["diverged"],
        }
        for row in report["rows"]
    ]
    compared = [
        {
            "table": one["dataset"],
            "protocol": one["protocol"],
            "model": f"{one['first']} − {one['second']}",
            "mse": one["mse"]["difference"]["mean"],
            "std": one["mse"]["difference"]["std"] or float("nan"),
            "runs": one["mse"]["difference"]["runs"],
            "p": one["mse"]["p"],
        }
        for one in report["comparisons"]
    ]
    return rows + [{"diverged": 0, **one} for one in compared]


def speed() -> list[dict[str, Any]]:
    """Seconds per epoch and windows per second, models in turns."""
    import slt

    rounds, steps = (2, 1) if REHEARSAL else (9, 50)
    with tempfile.TemporaryDirectory() as folder:
        data = slt.made_data(Path(folder))
        rows = [
            row
            for precision in ("float32", "bfloat16")
            for row in slt.measured(data, precision, device(), False, rounds, steps)
        ]
    return [
        {
            "precision": row["precision"],
            "model": row["model"],
            "s/epoch": row["seconds_per_epoch_extrapolated"]["median"],
            "windows/s": row["windows_per_second"]["median"],
            **{
                f"{kind} {end}": row[f"{kind}_ratio"][end]
                for kind in ("training", "inference")
                for end in ("median", "min", "max")
            },
        }
        for row in rows
    ]


def made_table(folder: Path) -> Path:
    """A short table for a rehearsal."""
    import numpy as np
    import pandas as pd

    wave = np.sin(np.arange(400)[:, None] * 2 * np.pi / 24 + np.arange(2))
    frame = pd.DataFrame(wave, columns=["a", "b"])
    frame.insert(0, "date", pd.date_range("2020-01-01", periods=400, freq="h"))
    frame.to_csv(folder / "made.csv", index=False)
    return folder


def main() -> None:
    """Train and time; the tables go to OUT."""
    record("slt-speed", speed())
    if not REHEARSAL:
        record("slt", study(Path(os.environ["DATA"]), ["ETTh1", "ETTh2"]))
        return
    with tempfile.TemporaryDirectory() as folder:
        record("slt", study(made_table(Path(folder)), ["made"], epochs=1, lookback=48, horizon=8))


if __name__ == "__main__":
    main()
