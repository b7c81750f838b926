"""Sparse-layered transformers on a GPU: both protocols, five seeds, all ablations, interleaved timing.

Several runs share the GPU, since a single one leaves it mostly idle. Seeds are trained sequentially, and the table and
an archive of the runs are rewritten after each. Resumable from the folder RUNS.

    DATA=PATH/ETTh RUNS=PATH python benchmarks/gpu/slt.py       # a CUDA machine, about an hour
    python benchmarks/gpu/slt.py --rehearse                     # a made table on a CPU, two minutes
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training import REHEARSAL, ROOT, RUNS, device, pack, record

sys.path.insert(0, str(ROOT / "benchmarks"))  # before this folder, which has a slt.py, too
SEEDS = 5
TOGETHER = 6
"""Runs that share a GPU."""


def study(data: Path, tables: list[str], **options: Any) -> None:
    """Train every run that is missing, seed by seed; after each seed write the table of all so far."""
    from rankscope.engine.pool import Engine
    from rankscope.io import codec
    from rankscope_cli.progress import progress_lines
    from rankscope_lab.slt.ablations import ABLATIONS
    from rankscope_lab.slt.models import MAIN
    from rankscope_lab.slt.report import study_report
    from rankscope_lab.slt.runs import run_specs, settings_of, study_specs

    settings = settings_of(MAIN, () if REHEARSAL else tuple(ABLATIONS))
    jobs = min(TOGETHER, os.cpu_count() or 1) if device() == "cuda" else 1
    for seeds in range(1, 1 + (1 if REHEARSAL else SEEDS)):
        specs = study_specs(settings, tables, ["released", "field"], seeds, **options)
        with progress_lines(f"slt, {seeds} of {SEEDS} seeds") as progress:
            results = run_specs(specs, data, RUNS / "slt", engine=Engine(jobs=jobs, device=device()), progress=progress)
        record("slt", table(codec.plain(study_report(results, tuple(ABLATIONS)))))
        pack("slt-runs", RUNS / "slt")


def table(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of the report's table, and of its comparisons."""
    rows = [
        {
            "table": row["dataset"],
            "protocol": row["protocol"],
            "model": row["model"],
            "mse": row["mse"]["mean"],
            "std": row["mse"]["std"],
            "runs": row["mse"]["n"],
            "diverged": row["diverged"],
            "p": None,
        }
        for row in report["rows"]
    ]
    compared = [
        {
            "table": one["dataset"],
            "protocol": one["protocol"],
            "model": f"{one['first']} − {one['second']}",
            "mse": one["mse"]["difference"]["mean"],
            "std": one["mse"]["difference"]["std"],
            "runs": one["mse"]["difference"]["n"],
            "diverged": 0,
            "p": one["mse"]["p"],
        }
        for one in report["comparisons"]
    ]
    return rows + compared


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
        study(Path(os.environ["DATA"]), ["ETTh1", "ETTh2"])
        return
    with tempfile.TemporaryDirectory() as folder:
        study(made_table(Path(folder)), ["made"], epochs=1, lookback=48, horizon=8)


if __name__ == "__main__":
    main()
