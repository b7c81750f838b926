"""Verdicts on relative scores: equivalence within a margin by two one-sided tests (TOST), else a test of difference.

The two tests are at level `ALPHA` each, so `held` and `no worse` can be read off one interval of coverage
1 − 2 · `ALPHA`, the 90 % one (Schuirmann, *A comparison of the two one-sided tests procedure and the power approach*,
1987). It is `rankscope_eval.relative.interval`, with the same small-sample correction as the 95 % one beside the
scores, off which `better` and `worse` are read: a test of no difference at level `ALPHA`. The margin is symmetric in
logarithms, from 1/(1 + margin) to 1 + margin: with model and baseline exchanged, `better` and `worse` change places
and `held` stays.

Each verdict is a test of its own: nothing corrects for several models, metrics or benchmarks.
"""

from __future__ import annotations

from collections.abc import Mapping

from rankscope.errors import OptionError
from rankscope.measure.tradeoff import Verdict
from rankscope_eval.relative import Draws, Interval, interval

MARGIN = 0.02
ALPHA = 0.05
"""Level of each one-sided test, and of the two-sided one."""
HELD, BETTER, NO_WORSE, WORSE, NOT_SHOWN = "held", "better", "no worse", "worse", "not shown"


def judge(
    draws: Mapping[str, Draws | None],
    ratios: Mapping[str, float],
    margin: float = MARGIN,
    sources: Mapping[str, str] | None = None,
) -> Verdict:
    """Judge the geometric mean of a score's ratios over data sets.

    Args:
        draws: resamples by data set (`rankscope_eval.relative.resample`); missing or None where there are none.
        ratios: score over the baseline's of each data set in the mean.
        margin: relative difference, more than 0.
        sources: of the data sets (default: each its own).
    """
    check_margin(margin)
    if not ratios:
        return Verdict(NOT_SHOWN, margin)
    usable = [one for name in ratios if (one := draws.get(name)) is not None]
    # An interval of fewer data sets than the mean's would be another mean's.
    apart = None if sources is None else [sources[name] for name in ratios]
    complete = len(usable) == len(ratios)
    levels = (1 - 2 * ALPHA, 1 - ALPHA)
    ends, beside = (interval(usable, apart, level=level) if complete else None for level in levels)
    worst = max(ratios, key=lambda name: ratios[name])
    there = draws.get(worst)
    allowed = None if there is None else interval([there], level=1 - 2 * ALPHA / len(ratios))
    return Verdict(_word(ends, beside, margin), margin, ends, worst, ratios[worst], allowed)


def check_margin(margin: float) -> None:
    """Refuse a margin that is none.

    Raises:
        OptionError: it is not between 0 and 1.
    """
    if not 0 < margin < 1:
        raise OptionError(f"margin is {margin:g}: give a share between 0 and 1, such as {MARGIN}.")


def _word(ends: Interval | None, beside: Interval | None, margin: float) -> str:
    if ends is None or beside is None:
        return NOT_SHOWN
    low, high = ends
    if 1 / (1 + margin) < low and high < 1 + margin:
        return HELD
    if beside[1] < 1:
        return BETTER
    if beside[0] > 1:
        return WORSE
    return NO_WORSE if high < 1 + margin else NOT_SHOWN
