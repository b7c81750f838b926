"""Paired comparisons, several at a time, and what is said of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rankscope_lab.statistics import Paired, paired

YES, NO, UNCLEAR = "yes", "no", "unclear"
LEVEL = 0.05
FEWEST = 3
"""Pairs below which nothing is claimed."""


@dataclass(frozen=True)
class Finding:
    """A claim, and whether the runs bear it out.

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
    """What a finding is made of.

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
    """Test claims seed by seed; p is adjusted over the claims of one question and setting.

    Claims whose two sides share no seed are left out; all others count in the adjustment. Where all differences are
    equal, as with ε-ranks that differ by the same number in every seed, there is no t-test, and the sign test judges.
    """
    from statsmodels.stats.multitest import multipletests  # most of a second, on no other path

    finite = [replace(one, values=_finite(one.values), others=_finite(one.others)) for one in claims]
    kept = [(one, paired(one.values, one.others)) for one in finite if one.values.keys() & one.others.keys()]
    families: dict[tuple[str, str], list[int]] = {}
    for position, (claim, _) in enumerate(kept):
        families.setdefault((claim.question, claim.setting), []).append(position)
    adjusted: dict[int, float] = {}
    for members in families.values():
        values = multipletests([p_value(kept[one][1]) for one in members], method="holm")[1].tolist()
        adjusted |= dict(zip(members, values, strict=True))
    return tuple(_finding(*one, adjusted[position]) for position, one in enumerate(kept))


def _finite(values: Mapping[int, float]) -> dict[int, float]:
    return {seed: value for seed, value in values.items() if math.isfinite(value)}


def p_value(test: Paired) -> float:
    """That of the t-test; where it has none, since all differences are equal, that of the sign test.

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
    if test.difference.n < FEWEST or adjusted >= LEVEL:
        return UNCLEAR
    return YES if test.difference.mean > 0 else NO
