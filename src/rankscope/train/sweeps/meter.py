"""How far a sweep is and how long it will take, from what its points have shown so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rankscope.engine.progress import Progress, silent
from rankscope.train.config import PretrainConfig

OVERHEAD = 1e8
"""Multiplications that a step costs besides the matrix products: they decide where models are tiny."""


def step_cost(config: PretrainConfig, parameters: int) -> float:
    """Guess what one optimiser step costs, in multiplications: tokens × parameters, and an overhead.

    Only the ratio between points matters: it turns the time that one point took into that of the others.
    """
    patches = config.family_record.strategy == "continuous"
    tokens = config.context / config.model.patch_size if patches else config.context + config.horizon
    return OVERHEAD + config.batch_size * config.accumulation * tokens * parameters


class Work(NamedTuple):
    """What a point has to do: optimiser steps, the cost of one, and how many it takes between two reports."""

    steps: int
    cost: float
    log_steps: int = 1


class Meter:
    """Adds up the steps of all points, weighted by their cost, and tells a `Progress` about them.

    Args:
        work: what each point has to do.
        report: told ``(done, total, what)`` in steps of average cost; ``what`` names point and step.
        clock: seconds.
    """

    def __init__(
        self, work: Mapping[str, Work], report: Progress = silent, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._work = dict(work)
        self._report = report
        self._clock = clock
        self._begun = clock()
        self.total = sum(one.steps for one in work.values())
        self._whole = sum(one.steps * one.cost for one in work.values())
        self._at: dict[str, int] = {}
        self._skipped: dict[str, int] = {}

    def step(self, point: str, done: int) -> None:
        """A point has taken ``done`` steps; those of an earlier attempt are not counted as work done now."""
        work = self._work[point]
        if point not in self._at:
            self._skipped[point] = max(0, done - work.log_steps)
        if done != self._at.get(point):
            self._at[point] = done
            self._tell(f"{point} step {done}/{work.steps}")

    def finish(self, point: str) -> None:
        """A point is over, done or failed: nothing of it is left, and steps that were not seen are no work done."""
        steps = self._work[point].steps
        self._skipped[point] = self._skipped.get(point, 0) + steps - self._at.get(point, 0)
        self._at[point] = steps
        self._tell(f"{point} is over")

    @property
    def seconds_left(self) -> float | None:
        """Seconds that the rest will take at the pace so far; None while there is no pace."""
        passed = self._clock() - self._begun
        made = self._sum(self._at) - self._sum(self._skipped)
        left = self._whole - self._sum(self._at)
        return passed * left / made if made > 0 else None

    def _sum(self, at: Mapping[str, int]) -> float:
        return sum((done * self._work[point].cost for point, done in at.items()), 0.0)

    def _tell(self, what: str) -> None:
        self._report(round(self.total * self._sum(self._at) / self._whole), self.total, what)


def duration(seconds: float | None) -> str:
    """A duration in words.

    >>> duration(None), duration(42.0), duration(900.0), duration(9000.0)
    ('unknown', '42 s', '15 min', '2.5 h')
    """
    if seconds is None:
        return "unknown"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
