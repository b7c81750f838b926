"""How far a sweep is and how long it will take, from what its points have shown so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from rankscope.pretrain.config import PretrainConfig
from rankscope.progress import Progress, silent

OVERHEAD = 1e8
"""Multiplications that a step costs besides the matrix products: they decide where models are tiny."""


def step_cost(config: PretrainConfig, parameters: int) -> float:
    """Guess what one optimiser step costs, in multiplications: tokens × parameters, and an overhead.

    Only the ratio between points matters: it turns the time that one point took into that of the others.
    """
    bolt = config.family == "chronos-bolt"
    tokens = config.context / config.model.patch_size if bolt else config.context + config.horizon
    return OVERHEAD + config.batch_size * config.accumulation * tokens * parameters


class Meter:
    """Adds up the steps of all points, weighted by their cost, and tells a `Progress` about them.

    Args:
        work: point → (steps, cost of a step).
        report: told ``(done, total, what)`` in steps of average cost; ``what`` names point and step.
        clock: seconds.
    """

    def __init__(
        self,
        work: Mapping[str, tuple[int, float]],
        report: Progress = silent,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._work = dict(work)
        self._report = report
        self._clock = clock
        steps = sum(steps for steps, _ in work.values())
        cost = sum(steps * cost for steps, cost in work.values())
        self._unit = cost / steps if steps else 1.0
        self.total = steps
        self._at: dict[str, int] = dict.fromkeys(work, 0)
        self._skipped: dict[str, int] = dict.fromkeys(work, 0)
        self._begun: float | None = None

    def step(self, point: str, done: int) -> None:
        """A point has taken ``done`` steps; what it had before the first report is not counted as work done now."""
        if self._begun is None:
            self._begun = self._clock()
        if self._at[point] == 0 and done > 0:
            self._skipped[point] = done
        if done != self._at[point]:
            self._at[point] = done
            self._tell(f"{point} step {done}/{self._work[point][0]}")

    def finish(self, point: str) -> None:
        """A point is over, done or failed: nothing of it is left, and steps that were not seen are no work done."""
        steps = self._work[point][0]
        self._skipped[point] += steps - self._at[point]
        self._at[point] = steps
        self._tell(f"{point} is over")

    @property
    def seconds_left(self) -> float | None:
        """Seconds that the rest will take at the pace so far; None while there is no pace."""
        if self._begun is None:
            return None
        now = self._clock() - self._begun
        made = self._sum(self._at) - self._sum(self._skipped)
        left = sum(steps * cost for steps, cost in self._work.values()) - self._sum(self._at)
        return now * left / made if made > 0 and now > 0 else None

    def _sum(self, at: Mapping[str, int]) -> float:
        return sum(done * self._work[point][1] for point, done in at.items())

    def _tell(self, what: str) -> None:
        self._report(round(self._sum(self._at) / self._unit), self.total, what)


def duration(seconds: float | None) -> str:
    """A duration in words.

    >>> duration(None), duration(42), duration(900), duration(9000)
    ('unknown', '42 s', '15 min', '2.5 h')
    """
    if seconds is None:
        return "unknown"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
