"""Means over seeds, paired tests, bootstrap intervals."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

RESAMPLES = 10_000
LEVEL = 0.95
ROUNDING = 1e-12
"""Differences that vary by less than this share of themselves are equal: those of logs of ranks, say."""


@dataclass(frozen=True)
class Spread:
    """Numbers of several seeds.

    Attributes:
        mean: NaN where there is no number.
        std: sample standard deviation (n − 1), or the population's where asked for; None below two numbers.
        n: how many.
    """

    mean: float
    std: float | None
    n: int

    @property
    def known(self) -> float | None:
        """The mean, None where there is no number."""
        return self.mean if self.n else None


def spread(values: Sequence[float | int], *, population: bool = False) -> Spread:
    """Summarise numbers, one per seed.

    >>> spread([1.0, 3.0])
    Spread(mean=2.0, std=1.4142135623730951, n=2)
    """
    mean = float(np.mean(values)) if values else math.nan
    std = float(np.std(values, ddof=0 if population else 1)) if len(values) > 1 else None
    return Spread(mean, std, len(values))


def bootstrap_interval(values: Sequence[float], *, seed: int = 0) -> tuple[float, float] | None:
    """Percentile interval of 95 % of the mean, by 10,000 resamples of the seeds; None below two numbers."""
    if len(values) < 2:
        return None
    if len(set(values)) == 1:
        return float(values[0]), float(values[0])
    found = stats.bootstrap(
        (np.asarray(values, dtype=np.float64),),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=LEVEL,
        method="percentile",
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    return float(found.low), float(found.high)


@dataclass(frozen=True)
class Paired:
    """Differences of pairs: first less second, seed by seed.

    Attributes:
        difference: their mean and standard deviation.
        t: statistic of the paired t-test with n − 1 degrees of freedom; None below two pairs, or where all differences
            are equal, but for rounding.
        p: two-sided, not corrected for the number of tests; None likewise.
        low: lower end of the test's 95 % interval of the mean difference; None likewise.
        high: upper end.
        lower: pairs in which the first is lower.
        higher: pairs in which it is higher.
    """

    difference: Spread
    t: float | None
    p: float | None
    low: float | None
    high: float | None
    lower: int
    higher: int

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Paired:
    """Compare two settings on the seeds that both have: the t-test of `scipy.stats.ttest_rel`.

    Args:
        first: seed → number.
        second: likewise.

    >>> paired({0: 1.5, 1: 2.1, 2: 9.0}, {0: 1.0, 1: 2.0}).higher
    2
    """
    gaps = list(differences(first, second).values())
    return Paired(spread(gaps), *_t_test(gaps), sum(gap < 0 for gap in gaps), sum(gap > 0 for gap in gaps))


def differences(first: Mapping[int, float], second: Mapping[int, float]) -> dict[int, float]:
    """Seed → first less second, of the seeds that both have, in their order."""
    return {seed: first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())}


def _t_test(gaps: Sequence[float]) -> tuple[float | None, float | None, float | None, float | None]:
    """Statistic, p and interval: a paired test is a test of the differences against 0."""
    if not gaps or np.ptp(gaps) <= ROUNDING * np.max(np.abs(gaps)):
        return None, None, None, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # differences that are equal but for rounding
        test = stats.ttest_1samp(gaps, 0.0)
        interval = test.confidence_interval(LEVEL)
    found = [float(one) for one in (test.statistic, test.pvalue, interval.low, interval.high)]
    if not all(map(math.isfinite, found)):
        return None, None, None, None
    return found[0], found[1], found[2], found[3]
