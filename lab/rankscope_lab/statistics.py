"""Means over seeds, Welch's and paired tests one at a time or adjusted by Holm's method, bootstrap intervals."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

RESAMPLES = 10_000
LEVEL = 0.95
ROUNDING = 1e-12
"""Relative tolerance below which differences count as constant, e.g. of log ranks."""


@dataclass(frozen=True)
class Spread:
    """Summary over seeds.

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


def welch(first: Spread, second: Spread) -> float | None:
    """Two-sided p of Welch's t-test on sample means and deviations; None below two numbers a side, or without spread.

    >>> round(welch(Spread(2.161, 0.023, 5), Spread(2.155, 0.019, 20)) or 0, 3)
    0.611
    """
    if first.n < 2 or second.n < 2 or not first.std or not second.std:
        return None
    found = stats.ttest_ind_from_stats(
        first.mean, first.std, first.n, second.mean, second.std, second.n, equal_var=False
    )
    return float(found.pvalue)


def holm(values: Sequence[float]) -> list[float]:
    """p-values adjusted by Holm's method, in their order."""
    from statsmodels.stats.multitest import multipletests  # most of a second, on no other path

    adjusted: list[float] = multipletests(values, method="holm")[1].tolist() if values else []
    return adjusted


def bootstrap_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % percentile bootstrap interval of the mean (10,000 resamples); None below two values."""
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
        random_state=np.random.default_rng(0),
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
        """True if the interval excludes 0."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Paired:
    """Compare two settings on their common seeds with a paired t-test (`scipy.stats.ttest_rel`).

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


YES, NO, UNCLEAR = "yes", "no", "unclear"
ALPHA = 0.05
FEWEST = 3
"""Minimum number of pairs for a test."""


@dataclass(frozen=True)
class Finding:
    """Claim to test.

    Attributes:
        question: ``a`` to ``d``, see `rankscope_lab.ranks.questions`.
        setting: of the runs.
        claim: that ``first`` is above ``second``.
        measure: of what.
        first: name of what is said to be higher.
        second: of what it is compared with.
        mean_first: over the seeds that both have.
        mean_second: likewise.
        low: lower end of the 95 % interval of the mean difference; None where there are too few pairs, or no spread.
        high: upper end.
        p: two-sided, as it is: of the paired t-test, or of the sign test where every difference is the same number.
        adjusted: p by Holm's method over all claims of the question in this setting.
        above: pairs in which ``first`` is higher.
        pairs: how many.
        verdict: ``yes``; ``no`` where the opposite holds; ``unclear``.
    """

    question: str
    setting: str
    claim: str
    measure: str
    first: str
    second: str
    mean_first: float
    mean_second: float
    low: float | None
    high: float | None
    p: float
    adjusted: float
    above: int
    pairs: int
    verdict: str

    @property
    def difference(self) -> float:
        """Mean of first less mean of second."""
        return self.mean_first - self.mean_second


@dataclass(frozen=True)
class Claim:
    """Claim and the numbers that bear it out or not.

    Attributes:
        question: letter.
        setting: of the runs.
        text: the claim.
        measure: of what.
        first: name of what is said to be higher.
        second: of the other.
        values: seed → number, of the first.
        others: of the second.
    """

    question: str
    setting: str
    text: str
    measure: str
    first: str
    second: str
    values: Mapping[int, float]
    others: Mapping[int, float]


def judged(claims: Sequence[Claim]) -> tuple[Finding, ...]:
    """Test claims paired by seed, with p-values adjusted within each question and setting.

    Claims whose two sides share no seed are left out; all others count in the adjustment. Where all differences are
    equal, as with ε-ranks that differ by the same number in every seed, there is no t-test, and the sign test judges.
    """
    finite = [replace(one, values=_finite(one.values), others=_finite(one.others)) for one in claims]
    kept = [(one, paired(one.values, one.others)) for one in finite if one.values.keys() & one.others.keys()]
    families: dict[tuple[str, str], list[int]] = {}
    for position, (claim, _) in enumerate(kept):
        families.setdefault((claim.question, claim.setting), []).append(position)
    adjusted: dict[int, float] = {}
    for members in families.values():
        values = holm([p_value(kept[one][1]) for one in members])
        adjusted |= dict(zip(members, values, strict=True))
    return tuple(_finding(*one, adjusted[position]) for position, one in enumerate(kept))


def _finite(values: Mapping[int, float]) -> dict[int, float]:
    return {seed: value for seed, value in values.items() if math.isfinite(value)}


def p_value(test: Paired) -> float:
    """Return the p-value of the t-test or, if all differences are equal, of the sign test.

    Five equal differences have 2 · 2⁻⁵ = 0.0625, differences of nothing have 1.
    """
    if test.p is not None:
        return test.p
    return 1.0 if test.difference.mean == 0 else 2.0 ** (1 - test.difference.n)


def _finding(claim: Claim, test: Paired, adjusted: float) -> Finding:
    seeds = sorted(claim.values.keys() & claim.others.keys())
    first, second = ([side[seed] for seed in seeds] for side in (claim.values, claim.others))
    return Finding(
        claim.question,
        claim.setting,
        claim.text,
        claim.measure,
        claim.first,
        claim.second,
        sum(first) / len(seeds),
        sum(second) / len(seeds),
        test.low,
        test.high,
        p_value(test),
        adjusted,
        sum(a > b for a, b in zip(first, second, strict=True)),
        len(seeds),
        _verdict(test, adjusted),
    )


def _verdict(test: Paired, adjusted: float) -> str:
    if test.difference.n < FEWEST or adjusted >= ALPHA:
        return UNCLEAR
    return YES if test.difference.mean > 0 else NO
