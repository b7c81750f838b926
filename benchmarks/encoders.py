"""Runs of the encoder audit per hour: one by one as published, side by side, and in one stack.

C = 4, d_model 64, 461 series. Four ways take turns: a plain model in this process on all threads (what the published
runs were); the same with the compiled functions; one process per core, each with a run of its own and the compiled
functions; two seeds in one stack (``torch.func.vmap``; the way of a GPU). Throughput is run-epochs per second, ratios
are against the first way within a round.

    python benchmarks/encoders.py --out benchmarks/results/encoders-DATE.json
    python benchmarks/encoders.py --quick
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from provenance import conditions, fastest, origin, parser, save, spread

from rankscope.engine.pool import Engine
from rankscope_eval.bench.turns import alternate
from rankscope_lab.encoders.data import run_data
from rankscope_lab.encoders.run_spec import RunSpec
from rankscope_lab.encoders.runs import run_specs
from rankscope_lab.encoders.stacked import train_stacked
from rankscope_lab.encoders.training import ComputeOptions, train
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


def alone(spec: RunSpec, *, kernels: bool) -> Callable[[], float]:
    """Seconds per run-epoch of one run in this process."""
    data = run_data(spec)

    def once() -> float:
        begun = time.perf_counter()
        train(spec, data, ComputeOptions(kernels=kernels, stop=EPOCHS))
        return (time.perf_counter() - begun) / EPOCHS

    return once


def processes(spec: RunSpec) -> Callable[[], float]:
    """The same of a run per core, each in a process; the start of the processes is not counted."""

    def once() -> float:
        with tempfile.TemporaryDirectory() as folder:
            specs = [replace(spec, seed=seed) for seed in range(CORES)]
            results = run_specs(specs, folder, how=ComputeOptions(stop=EPOCHS), engine=Engine(jobs=CORES))
        return sum(result.seconds for result in results) / CORES / EPOCHS / CORES

    return once


def stacked(spec: RunSpec, seeds: int) -> Callable[[], float]:
    """The same of several seeds in one stack."""
    specs = [replace(spec, seed=seed) for seed in range(seeds)]
    data = [run_data(one) for one in specs]

    def once() -> float:
        begun = time.perf_counter()
        train_stacked(specs, data, ComputeOptions(stop=EPOCHS))
        return (time.perf_counter() - begun) / EPOCHS / seeds

    return once


def product_rate() -> float:
    """FLOP/s of float32 products on all threads, the best of ten."""
    a = torch.randn(2048, 2048)
    return 2 * 2048**3 / fastest(lambda: a @ a)


def main() -> None:
    """Measure, print, save."""
    words = parser(__doc__, "one round", rounds=5)
    words.add_argument("--encoder", default="linear")
    options = words.parse_args()
    began = conditions()
    spec = RunSpec(options.encoder)
    ways = {
        "one by one": alone(spec, kernels=False),
        "one by one, compiled": alone(spec, kernels=True),
        f"{CORES} processes, compiled": processes(spec),
        "stack": stacked(spec, 2),
    }
    if library() is None:
        raise SystemExit("no C++ compiler: there is nothing to compare.")
    floor = FLOPS * STEPS / product_rate()
    seconds = alternate(ways, 1 if options.quick else options.rounds)
    first = seconds["one by one"]
    rows: list[dict[str, Any]] = [
        {
            "way": name,
            "seconds_per_run_epoch": spread(values),
            "times_faster": spread([slow / mine for slow, mine in zip(first, values, strict=True)]),
            "share_of_floor": spread([floor / mine for mine in values]),
        }
        for name, values in seconds.items()
    ]
    for row in rows:
        taken, ratio = (row[name]["median"] for name in ("seconds_per_run_epoch", "times_faster"))
        print(f"{row['way']:28} {taken:.2f} s per run and epoch, {ratio:.2f} times faster")
    result = {"cell": spec.id, "floor_seconds": floor, "rounds": len(first), "rows": rows}
    save({**origin("encoders", *USED), **result, "conditions": began}, options.out)


if __name__ == "__main__":
    main()
