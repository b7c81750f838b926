"""Encoder audit on a GPU: stacked seeds against single runs, then Tables 1 and 13.

Resumable: finished runs are read from the folder RUNS. ``--rehearse``: two seeds, two epochs.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from training import REHEARSAL, RUNS, device, pack, record, save

from rankscope_lab.encoders.data import run_data
from rankscope_lab.encoders.run_spec import DROP_IN, RunSpec, etth1_spec
from rankscope_lab.encoders.runs import run_specs
from rankscope_lab.encoders.stacked import train_stacked
from rankscope_lab.encoders.training import ComputeOptions, train
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
    specs = [RunSpec("linear", seed=seed, epochs=EPOCHS) for seed in range(SEEDS)]
    data = [run_data(spec) for spec in specs]
    for precision in PRECISIONS:
        how = ComputeOptions(torch.device(device()), precision, kernels=False, stop=TIMED)
        for seeds in (1, 5, SEEDS):
            found = []
            for _ in range(3):
                begun = synchronised()
                if seeds == 1:
                    train(specs[0], data[0], how)
                else:
                    train_stacked(specs[:seeds], data[:seeds], how)
                found.append(TIMED * min(seeds, SEEDS) / (synchronised() - begun))
            rows.append({"precision": precision, "seeds": seeds, "run_epochs_per_second": sorted(found)[1]})
    for row in rows:
        alone = next(one for one in rows if one["precision"] == PRECISIONS[0] and one["seeds"] == 1)
        row["times_faster"] = row["run_epochs_per_second"] / alone["run_epochs_per_second"]
    return rows


def tables() -> list[dict[str, Any]]:
    """The six drop-in encoders at C = 4 and, where its table is at hand, on ETTh1."""
    specs = [RunSpec(name, seed=seed) for name in DROP_IN for seed in range(SEEDS)]
    if ETTH1.is_file():
        specs += [etth1_spec(name, seed) for name in DROP_IN for seed in range(SEEDS)]
    specs = [replace(spec, epochs=EPOCHS) for spec in specs]
    how = ComputeOptions(torch.device(device()))
    results = run_specs(specs, RUNS / "encoders", how=how, etth1=ETTH1 if ETTH1.is_file() else None)
    pack("encoders-runs", RUNS / "encoders")
    return [
        {"cell": result.spec.id, "best": result.best.loss, "accuracy": result.best.accuracy, "state": result.state}
        for result in results
    ]


def main() -> None:
    """Time, then train."""
    record("encoders-throughput", throughput())
    save("encoders-tables", tables())


if __name__ == "__main__":
    main()
