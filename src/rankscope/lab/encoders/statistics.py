"""Means over seeds, paired tests, bootstrap intervals."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.stats

from rankscope.errors import DataError

RESAMPLES = 10_000
LEVEL = 0.95


@dataclass(frozen=True)
class Summary:
    """Numbers of several seeds.

    Attributes:
        mean: none where there is no number.
        std: sample standard deviation (n − 1), or the population's where asked for; none below two numbers.
        n: how many.
    """

    mean: float | None
    std: float | None
    n: int

    def to_json(self) -> dict[str, Any]:
        """As a dict."""
        return asdict(self)


def summarise(values: Sequence[float], *, population: bool = False) -> Summary:
    """Mean and standard deviation.

    >>> summarise([1.0, 3.0])
    Summary(mean=2.0, std=1.4142135623730951, n=2)
    """
    if not values:
        return Summary(None, None, 0)
    std = float(np.std(values, ddof=0 if population else 1)) if len(values) > 1 else None
    return Summary(float(np.mean(values)), std, len(values))


def bootstrap_interval(values: Sequence[float], *, seed: int = 0) -> tuple[float, float] | None:
    """Percentile interval of 95 % of the mean, by 10,000 resamples of the seeds; none below two numbers."""
    if len(values) < 2:
        return None
    if len(set(values)) == 1:
        return float(values[0]), float(values[0])
    found = scipy.stats.bootstrap(
        (np.asarray(values, dtype=np.float64),),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=LEVEL,
        method="percentile",
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    return float(found.low), float(found.high)


@dataclass(frozen=True)
class PairedTest:
    """Differences other − better, seed by seed; positive where ``better`` has the lower loss.

    Attributes:
        difference: mean.
        std: of the differences, n − 1.
        t: statistic of the paired t-test with n − 1 degrees of freedom.
        p: two-sided; not corrected for the number of tests.
        wins: seeds with a positive difference.
        n: seeds that both have.
        interval: of the mean difference, by `bootstrap_interval`.
    """

    difference: float
    std: float | None
    t: float | None
    p: float | None
    wins: int
    n: int
    interval: tuple[float, float] | None

    def to_json(self) -> dict[str, Any]:
        """As a dict."""
        return asdict(self)


def paired_test(better: Mapping[int, float], other: Mapping[int, float]) -> PairedTest:
    """Compare two encoders on the seeds that both have (`scipy.stats.ttest_rel`).

    Args:
        better: seed → loss.
        other: seed → loss.

    Raises:
        DataError: they share no seed.

    >>> paired_test({0: 1.0, 1: 2.0}, {0: 1.5, 1: 2.1, 2: 9.0}).wins
    2
    """
    seeds = sorted(better.keys() & other.keys())
    if not seeds:
        raise DataError("a paired test needs runs of the same seeds: the two encoders share none.")
    first, second = ([losses[seed] for seed in seeds] for losses in (better, other))
    differences = [b - a for a, b in zip(first, second, strict=True)]
    summary = summarise(differences)
    t, p = _t_test(second, first)
    wins = sum(one > 0 for one in differences)
    assert summary.mean is not None
    return PairedTest(summary.mean, summary.std, t, p, wins, len(seeds), bootstrap_interval(differences))


def _t_test(first: Sequence[float], second: Sequence[float]) -> tuple[float | None, float | None]:
    """Statistic and p; none below two seeds or where all differences are equal."""
    if len(first) < 2:
        return None, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # differences without spread: reported as none
        found = scipy.stats.ttest_rel(first, second)
    finite = math.isfinite(found.statistic) and math.isfinite(found.pvalue)
    return (float(found.statistic), float(found.pvalue)) if finite else (None, None)
