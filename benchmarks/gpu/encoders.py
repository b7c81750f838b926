"""Item 8: the encoder audit on a GPU: many seeds in one stack against runs one by one, then Tables 1 and 13.

Stopped, it goes on where it was: finished runs are read from the folder RUNS. ``--rehearse``: two seeds, two epochs.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from training import REHEARSAL, RUNS, device, pack, record, save

from rankscope_lab.encoders.cell import DROP_IN, Cell, etth1_cell
from rankscope_lab.encoders.data import cell_data
from rankscope_lab.encoders.runs import run_cells
from rankscope_lab.encoders.stacked import train_stacked
from rankscope_lab.encoders.training import How, train
from rankscope_lab.machine import PRECISIONS

SEEDS = 2 if REHEARSAL else 20
EPOCHS = 2 if REHEARSAL else 300
TIMED = 2 if REHEARSAL else 10
"""Epochs of a timing."""
ETTH1 = Path(os.environ.get("ETTH1", "ETTh1.csv"))


def synchronised() -> float:
    """The clock, after all that was asked of the device."""
    if device() == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def throughput() -> list[dict[str, Any]]:
    """Run-epochs per second of one run by itself and of stacks of seeds, in both precisions; turns, median of three."""
    rows: list[dict[str, Any]] = []
    cells = [Cell("linear", seed=seed, epochs=EPOCHS) for seed in range(SEEDS)]
    data = [cell_data(cell) for cell in cells]
    for precision in PRECISIONS:
        how = How(torch.device(device()), precision, kernels=False, stop=TIMED)
        for seeds in (1, 5, SEEDS):
            found = []
            for _ in range(3):
                begun = synchronised()
                if seeds == 1:
                    train(cells[0], data[0], how)
                else:
                    train_stacked(cells[:seeds], data[:seeds], how)
                found.append(TIMED * min(seeds, SEEDS) / (synchronised() - begun))
            rows.append({"precision": precision, "seeds": seeds, "run_epochs_per_second": sorted(found)[1]})
    for row in rows:
        alone = next(one for one in rows if one["precision"] == PRECISIONS[0] and one["seeds"] == 1)
        row["times_faster"] = row["run_epochs_per_second"] / alone["run_epochs_per_second"]
    return rows


def tables() -> list[dict[str, Any]]:
    """The six drop-in encoders at C = 4 and, where its table is at hand, on ETTh1."""
    cells = [Cell(name, seed=seed) for name in DROP_IN for seed in range(SEEDS)]
    if ETTH1.is_file():
        cells += [etth1_cell(name, seed) for name in DROP_IN for seed in range(SEEDS)]
    cells = [replace(cell, epochs=EPOCHS) for cell in cells]
    how = How(torch.device(device()))
    results = run_cells(cells, RUNS / "encoders", how=how, etth1=ETTH1 if ETTH1.is_file() else None)
    pack("encoders-runs", RUNS / "encoders")
    return [
        {"cell": result.cell.id, "best": result.best.loss, "accuracy": result.best.accuracy, "state": result.state}
        for result in results
    ]


def main() -> None:
    """Time, then train."""
    record("encoders-throughput", throughput())
    save("encoders-tables", tables())


if __name__ == "__main__":
    main()
