"""Interleaved timing, so that background load affects all cases alike, and growth exponents."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import linear_regression, median
from typing import Any, TypeVar

from rankscope.errors import OptionError

Name = TypeVar("Name")
Turn = Callable[[], float]
"""Callable that runs one repetition and returns its seconds."""


@dataclass(frozen=True)
class Spread:
    """Median, minimum and maximum.

    >>> Spread.of([3.0, 1.0, 2.0])
    Spread(median=2.0, min=1.0, max=3.0)
    """

    median: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarise values."""
        return cls(median(values), min(values), max(values))


def timed(work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> Turn:
    """Wrap a function into a timed turn; the function runs once as a warm-up.

    GPU work must end with a copy to the CPU; otherwise only the launch is timed.
    """
    work()

    def turn() -> float:
        begun = clock()
        work()
        return clock() - begun

    return turn


def alternate(
    works: Mapping[Name, Turn], rounds: int, after: Callable[[int], None] = lambda done: None
) -> dict[Name, tuple[float, ...]]:
    """Run all works once per round, rotating the order (A B, B A, A B; A B C, B C A, …).

    Args:
        works: turns by name; an exception aborts the run.
        rounds: number of rounds.
        after: called after every turn with the number of turns so far.

    Returns:
        Seconds by name, one value per round.
    """
    names = list(works)
    seconds: dict[Name, list[float]] = {name: [] for name in names}
    done = 0
    for number in range(rounds):
        first = number % len(names) if names else 0
        for name in [*names[first:], *names[:first]]:
            seconds[name].append(works[name]())
            done += 1
            after(done)
    return {name: tuple(values) for name, values in seconds.items()}


def ratios(seconds: Sequence[float], baseline: Sequence[float]) -> Spread:
    """Summarise the ratios to the baseline's seconds of the same round."""
    return Spread.of([mine / reference for mine, reference in zip(seconds, baseline, strict=True)])


@dataclass(frozen=True)
class Growth:
    """Growth exponents of time in a size, summarised over rounds.

    Attributes:
        exponent: over the larger half of the sizes, where constant costs matter less.
        whole: over all sizes.
    """

    exponent: Spread
    whole: Spread

    @property
    def verdict(self) -> str:
        """Verdict on superlinear growth.

        >>> Growth(Spread(1.01, 0.98, 1.05), Spread(0.7, 0.6, 0.8)).verdict
        'linear within the spread'
        """
        if self.exponent.median <= 1:
            return "at most linear"
        return "above linear" if self.exponent.min > 1 else "linear within the spread"


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Fit the slope of log seconds over log size by least squares.

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
    """Compute growth exponents by round.

    Args:
        sizes: increasing; with an odd number, the middle one belongs to the larger half.
        turns: seconds, one row per size and one column per round.

    Raises:
        OptionError: sizes are too few or not increasing, a time is not positive, or rows differ in length or are empty.
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
