"""Throughput of encoder-audit runs: sequential as published, in parallel processes, and stacked.

C = 4, d_model 64, 461 series. Four interleaved cases: a plain model in this process on all threads (as published); the
same with compiled functions; one process per core with compiled functions; two stacked seeds (``torch.func.vmap``, as
on a GPU). Throughput is in run-epochs per second; ratios are to the first case within a round.

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
    """Time one run in this process, in seconds per run-epoch."""
    data = run_data(spec)

    def once() -> float:
        begun = time.perf_counter()
        train(spec, data, ComputeOptions(kernels=kernels, stop=EPOCHS))
        return (time.perf_counter() - begun) / EPOCHS

    return once


def processes(spec: RunSpec) -> Callable[[], float]:
    """Time one run per core in separate processes, excluding process start-up."""

    def once() -> float:
        with tempfile.TemporaryDirectory() as folder:
            specs = [replace(spec, seed=seed) for seed in range(CORES)]
            results = run_specs(specs, folder, how=ComputeOptions(stop=EPOCHS), engine=Engine(jobs=CORES))
        return sum(result.seconds for result in results) / CORES / EPOCHS / CORES

    return once


def stacked(spec: RunSpec, seeds: int) -> Callable[[], float]:
    """Time several stacked seeds."""
    specs = [replace(spec, seed=seed) for seed in range(seeds)]
    data = [run_data(one) for one in specs]

    def once() -> float:
        begun = time.perf_counter()
        train_stacked(specs, data, ComputeOptions(stop=EPOCHS))
        return (time.perf_counter() - begun) / EPOCHS / seeds

    return once


def product_rate() -> float:
    """Measure float32 matmul FLOP/s on all threads, best of ten."""
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
        raise SystemExit("no C++ compiler: nothing to compare.")
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
