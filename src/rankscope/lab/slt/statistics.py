"""Means over seeds, and differences of runs with the same seed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import stats

from rankscope.lab.slt.cell import CellResult


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation of runs.

    Attributes:
        mean: NaN without a run.
        std: None of fewer than two runs.
        runs: how many.
    """

    mean: float
    std: float | None
    runs: int


def spread(values: Sequence[float]) -> Spread:
    """Summarise numbers, one per run.

    >>> spread([1.0, 3.0])
    Spread(mean=2.0, std=1.4142135623730951, runs=2)
    """
    mean = statistics.fmean(values) if values else math.nan
    return Spread(mean, statistics.stdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True)
class Paired:
    """Differences of pairs: first less second, by seed.

    Attributes:
        difference: their mean and standard deviation.
        p: of the paired t-test, two-sided; None of fewer than two pairs, or where all differences are equal.
        wins: pairs in which the first is lower.
        low: lower end of the 95 % interval of the mean difference; None where p is.
        high: upper end.
    """

    difference: Spread
    p: float | None
    wins: int
    low: float | None
    high: float | None

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Paired:
    """Compare two settings on the seeds that both have.

    Args:
        first: seed → number.
        second: likewise.
    """
    seeds = sorted(first.keys() & second.keys())
    gaps = [first[seed] - second[seed] for seed in seeds]
    wins = sum(gap < 0 for gap in gaps)
    if len(set(gaps)) < 2:
        return Paired(spread(gaps), None, wins, None, None)
    test = stats.ttest_rel([first[seed] for seed in seeds], [second[seed] for seed in seeds])
    interval = test.confidence_interval(0.95)
    return Paired(spread(gaps), float(test.pvalue), wins, float(interval.low), float(interval.high))


def by_seed(results: Sequence[CellResult], what: str = "chosen") -> dict[int, float]:
    """Seed → test MSE of runs of one setting, diverged ones left out.

    Args:
        results: of cells that differ by seed only.
        what: ``chosen`` (as the protocol says), ``last`` or ``best``.
    """
    return {one.cell.seed: getattr(one, what).test.mse for one in results if not one.diverged}
