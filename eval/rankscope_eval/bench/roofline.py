"""Roofline: minimum time of a forecast at the machine's measured bandwidth and matmul throughput."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rankscope_eval.bench.counts import Phase

CPU_SIDES, GPU_SIDES = (512, 1024, 2048), (4096, 8192)
"""Sizes of the square matmuls to time."""
CPU_BYTES, GPU_BYTES = tuple(2**n for n in (20, 22, 24, 26, 28)), tuple(2**n for n in (24, 26, 28, 30, 32))
"""Bytes read and written per copy; small copies run in cache."""
ENOUGH = 0.1
"""No larger matmul is timed after one of this many seconds: a processor without bfloat16 units takes minutes."""


@dataclass(frozen=True)
class Rates:
    """Measured rates of a machine for one dtype.

    Attributes:
        dtype: dtype of the operands.
        flops_per_second: best square matmul, by torch or by the fast runtime.
        copies: (bytes read and written by a copy, bytes per second), smallest first.
    """

    dtype: str
    flops_per_second: float
    copies: tuple[tuple[int, float], ...]

    def bytes_per_second(self, size: int) -> float:
        """Return the bandwidth for a working set of ``size`` bytes.

        This is the best of the largest copy that is no larger and of all above it, since launch overhead dominates
        small ones.

        >>> Rates("float32", 1.0, ((4, 30.0), (16, 10.0))).bytes_per_second(15)
        30.0
        """
        fitting = [moved for moved, _ in self.copies if moved <= size] or [self.copies[0][0]]
        return max(rate for moved, rate in self.copies if moved >= fitting[-1])


def floor_seconds(phases: Iterable[Phase], rates: Rates) -> float:
    """Return the sum over phases of max(bytes / bandwidth, FLOPs / matmul rate).

    The bandwidth is measured at the working-set size of the phase, so that a model that fits in cache is compared with
    the cache bandwidth.
    """
    return sum(max(one.bytes / rates.bytes_per_second(one.bytes), one.flops / rates.flops_per_second) for one in phases)


def best(measured: Sequence[Rates]) -> Rates:
    """Return the best of several measurements for the same dtype."""
    copies = zip(*(one.copies for one in measured), strict=True)
    fastest = tuple((same[0][0], max(rate for _, rate in same)) for same in copies)
    return Rates(measured[0].dtype, max(one.flops_per_second for one in measured), fastest)


def measure_rates(dtype: str, device: str, repeats: int = 2) -> Rates:
    """Measure both rates in this process with the current number of torch threads."""
    import torch

    from rankscope.forecast.products import multiply

    kind, on_gpu = getattr(torch, dtype), device.startswith("cuda")
    settle = torch.cuda.synchronize if on_gpu else (lambda: None)
    flops = []
    for way in (lambda a, out: torch.mm(a, a, out=out), lambda a, out: multiply(a, a)):
        for side in GPU_SIDES if on_gpu else CPU_SIDES:
            a = torch.randn(side, side, device=device).to(kind)
            seconds = _fastest(partial(way, a, torch.empty_like(a)), settle, repeats)
            flops.append(2 * side**3 / seconds)
            if seconds > ENOUGH:
                break
    copies = []
    for moved in GPU_BYTES if on_gpu else CPU_BYTES:
        source = torch.zeros(moved // 2, dtype=torch.uint8, device=device)
        target = torch.zeros_like(source)
        count = max(repeats, 2**26 // moved)
        copies.append((moved, moved / _fastest(lambda s=source, t=target: t.copy_(s), settle, count)))  # type: ignore[misc]
    return Rates(dtype, max(flops), tuple(copies))


def _fastest(work: Callable[[], Any], settle: Callable[[], Any], repeats: int) -> float:
    """Return the time of the fastest call, after one warm-up call."""
    taken = []
    for _ in range(repeats + 1):
        settle()
        begun = time.perf_counter()
        work()
        settle()
        taken.append(time.perf_counter() - begun)
    return min(taken[1:])
