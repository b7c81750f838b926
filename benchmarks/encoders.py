"""Runs of the encoder audit per hour: one by one as published, side by side, and in one stack.

C = 4, d_model 64, 461 series. Four ways take turns: a plain model in this process on all threads (what the published
runs were); the same with the compiled functions; one process per core, each with a run of its own and the compiled
functions; two seeds in one stack (``torch.func.vmap``; the way of a GPU). Throughput is run-epochs per second, ratios
are against the first way within a round.

    python benchmarks/encoders.py --out benchmarks/results/encoders-DATE.json
    python benchmarks/encoders.py --quick
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from provenance import conditions, origin, save, spread

from rankscope.engine.pool import Engine
from rankscope_lab.encoders.cell import Cell
from rankscope_lab.encoders.data import cell_data
from rankscope_lab.encoders.runs import run_cells
from rankscope_lab.encoders.stacked import train_stacked
from rankscope_lab.encoders.training import How, train
from rankscope_lab.kernels import library

USED = ("lab/rankscope_lab",)
CORES = os.cpu_count() or 1
EPOCHS = 2
"""Of each turn, after one that warms up where the way has no start of its own."""
FLOPS = 6.5e9
"""Multiplications and additions of a step's products, forward and backward: 5,120 tokens through 152,672 parameters
(three times 2 per parameter) and full attention over 160 steps."""
STEPS = 15
"""Per epoch."""


def alone(cell: Cell, *, kernels: bool) -> Callable[[], float]:
    """Seconds per run-epoch of one run in this process."""
    data = cell_data(cell)

    def once() -> float:
        begun = time.perf_counter()
        train(cell, data, How(kernels=kernels, stop=EPOCHS))
        return (time.perf_counter() - begun) / EPOCHS

    return once


def processes(cell: Cell) -> Callable[[], float]:
    """The same of a run per core, each in a process; the start of the processes is not counted."""

    def once() -> float:
        with tempfile.TemporaryDirectory() as folder:
            cells = [replace(cell, seed=seed) for seed in range(CORES)]
            results = run_cells(cells, folder, how=How(stop=EPOCHS), engine=Engine(jobs=CORES))
        return sum(result.seconds for result in results) / CORES / EPOCHS / CORES

    return once


def stacked(cell: Cell, seeds: int) -> Callable[[], float]:
    """The same of several seeds in one stack."""
    cells = [replace(cell, seed=seed) for seed in range(seeds)]
    data = [cell_data(one) for one in cells]

    def once() -> float:
        begun = time.perf_counter()
        train_stacked(cells, data, How(stop=EPOCHS))
        return (time.perf_counter() - begun) / EPOCHS / seeds

    return once


def product_rate() -> float:
    """FLOP/s of float32 products on all threads, the best of ten."""
    a = torch.randn(2048, 2048)
    best = float("inf")
    for _ in range(10):
        begun = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - begun)
    return 2 * 2048**3 / best


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--encoder", default="linear")
    parser.add_argument("--quick", action="store_true", help="one round")
    options = parser.parse_args()
    began = conditions()
    cell = Cell(options.encoder)
    ways = {
        "one by one": alone(cell, kernels=False),
        "one by one, compiled": alone(cell, kernels=True),
        f"{CORES} processes, compiled": processes(cell),
        "stack": stacked(cell, 2),
    }
    if library() is None:
        raise SystemExit("no C++ compiler: there is nothing to compare.")
    floor = FLOPS * STEPS / product_rate()
    rounds: list[dict[str, float]] = []
    for _ in range(1 if options.quick else options.rounds):
        rounds.append({name: way() for name, way in ways.items()})
        print({name: f"{seconds:.2f} s" for name, seconds in rounds[-1].items()}, flush=True)
    first = next(iter(ways))
    rows: list[dict[str, Any]] = [
        {
            "way": name,
            "seconds_per_run_epoch": spread([row[name] for row in rounds]),
            "times_faster": spread([row[first] / row[name] for row in rounds]),
            "share_of_floor": spread([floor / row[name] for row in rounds]),
        }
        for name in ways
    ]
    for row in rows:
        seconds, ratio = (row[name]["median"] for name in ("seconds_per_run_epoch", "times_faster"))
        print(f"{row['way']:28} {seconds:.2f} s per run and epoch, {ratio:.2f} times faster")
    result = {"cell": cell.id, "floor_seconds": floor, "rounds": len(rounds), "rows": rows}
    save({**origin("encoders", *USED), **result, "conditions": began}, options.out)


if __name__ == "__main__":
    main()
