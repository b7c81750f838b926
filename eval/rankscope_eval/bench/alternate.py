"""Turns of several pieces of work, so that a busy machine disturbs all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

Turn = Callable[[], float]
"""One turn of a piece of work: it says its own seconds."""


@dataclass(frozen=True)
class Spread:
    """Median, least and largest of some values.

    >>> Spread.of([3.0, 1.0, 2.0])
    Spread(median=2.0, min=1.0, max=3.0)
    """

    median: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Spread of values."""
        return cls(median(values), min(values), max(values))


def alternate(
    works: Mapping[str, Turn], rounds: int, after: Callable[[int], None] = lambda done: None
) -> dict[str, tuple[float, ...]]:
    """Give every piece of work a turn per round; in every round another one begins (A B, B A, A B; A B C, B C A, …).

    Args:
        works: by name; a turn that raises ends all.
        rounds: turns of each.
        after: called after every turn with the number of turns so far.

    Returns:
        Seconds by name, one value per round.
    """
    names = list(works)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    done = 0
    for number in range(rounds):
        first = number % len(names) if names else 0
        for name in [*names[first:], *names[:first]]:
            seconds[name].append(works[name]())
            done += 1
            after(done)
    return {name: tuple(values) for name, values in seconds.items()}


def ratios(seconds: Sequence[float], baseline: Sequence[float]) -> Spread:
    """Spread over rounds of seconds / the baseline's seconds of the same round."""
    return Spread.of([mine / reference for mine, reference in zip(seconds, baseline, strict=True)])
