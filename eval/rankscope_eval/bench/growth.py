"""How time grows with a size, as an exponent: 1 where twice the size takes twice the time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import linear_regression

from rankscope.errors import OptionError
from rankscope_eval.bench.alternate import Spread


@dataclass(frozen=True)
class Growth:
    """Exponents of time over a size: spreads over rounds, each exponent of the times of one round.

    Attributes:
        exponent: over the larger half of the sizes, where a constant cost hides less of the growth.
        whole: over all sizes.
    """

    exponent: Spread
    whole: Spread

    @property
    def verdict(self) -> str:
        """What the spread says of growth above linear.

        >>> Growth(Spread(1.01, 0.98, 1.05), Spread(0.7, 0.6, 0.8)).verdict
        'linear within the spread'
        """
        if self.exponent.median <= 1:
            return "at most linear"
        return "above linear" if self.exponent.min > 1 else "linear within the spread"


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Slope of the straight line through log seconds over log size, by least squares.

    >>> round(exponent([1, 2, 4], [3, 12, 48]), 6)
    2.0

    Raises:
        OptionError: fewer than two different sizes, or a value that is not above 0.
    """
    if len(sizes) != len(seconds) or len(set(sizes)) < 2:
        raise OptionError("an exponent needs at least two different sizes, and as many times.")
    if not all(0 < value < math.inf for value in (*sizes, *seconds)):
        raise OptionError("an exponent needs sizes and times that are finite and above 0.")
    return linear_regression([math.log(size) for size in sizes], [math.log(each) for each in seconds]).slope


def growth(sizes: Sequence[float], turns: Sequence[Sequence[float]]) -> Growth:
    """Exponents round by round.

    Args:
        sizes: in rising order; of an odd number the middle one counts to the larger half.
        turns: seconds, one row per size and one column per round.

    Raises:
        OptionError: sizes do not rise, or are too few; a time is not above 0; rows are unequally long or empty.
    """
    if len(turns) != len(sizes) or len({len(row) for row in turns}) != 1 or not turns[0]:
        raise OptionError("growth needs a row of times per size, all equally long and not empty.")
    if list(sizes) != sorted(set(sizes)):
        raise OptionError("growth needs sizes that rise.")
    first = min(len(sizes) // 2, max(0, len(sizes) - 2))
    rounds = list(zip(*turns, strict=True))
    return Growth(
        Spread.of([exponent(sizes[first:], one[first:]) for one in rounds]),
        Spread.of([exponent(sizes, one) for one in rounds]),
    )
