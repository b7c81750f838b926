"""Two pieces of work timed against each other, turn by turn, so that a busy machine disturbs both alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

ROUNDS = 3


@dataclass(frozen=True)
class Versus:
    """Seconds of two pieces of work, one value per round."""

    first: tuple[float, ...]
    second: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Median over rounds of second / first."""
        return median(b / a for a, b in zip(self.first, self.second, strict=True))


def time_against(
    first: Callable[[], Any],
    second: Callable[[], Any],
    rounds: int = ROUNDS,
    clock: Callable[[], float] = time.perf_counter,
) -> Versus:
    """Run both once unmeasured, then in alternating order, each once a round.

    Work on a GPU has to end with a copy to the CPU, or only its launch is timed.
    """
    seconds: dict[int, list[float]] = {0: [], 1: []}
    works = (first, second)
    for work in works:
        work()
    for number in range(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            begun = clock()
            works[which]()
            seconds[which].append(clock() - begun)
    return Versus(tuple(seconds[0]), tuple(seconds[1]))
