"""Interleaved timing, so that background load affects all cases alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar

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
