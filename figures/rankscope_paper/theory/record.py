"""What a check is, and what it found."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

Generator = np.random.Generator
Case = Any
"""One instance: a frozen record of matrices and numbers, a kind of its own for every check."""


@dataclass(frozen=True)
class Check:
    """One statement of the paper, and how to try it on instances.

    Attributes:
        id: short name, e.g. ``thm2``.
        title: name in the paper.
        statement: the inequality that is checked, in one line.
        instances: how many are tried by default.
        kinds: families of instances, tried in turn; all but ``random`` are built to come close to the bound.
        draw: one instance of a kind; the same generator state gives the same instance.
        ratio: measured/bound of an upper bound, bound/measured of a lower one, at the worst place in the instance:
            the statement holds where it is at most 1. None where the instance misses a hypothesis.
        describe: the instance in a few words.
        mend: makes an instance that was changed at random meet the hypotheses again; None where climbing is of no use.
        printed: ratio of the statement as the paper prints it, where that is not what is checked.
        printed_statement: that statement.
    """

    id: str
    title: str
    statement: str
    instances: int
    kinds: tuple[str, ...]
    draw: Callable[[str, Generator], Case]
    ratio: Callable[[Case], float | None]
    describe: Callable[[Case], str]
    mend: Callable[[Case, Generator], Case] | None = None
    printed: Callable[[Case], float | None] | None = None
    printed_statement: str = ""


@dataclass(frozen=True)
class Printed:
    """How the statement fared as it is printed, where that differs from what is checked."""

    statement: str
    worst_ratio: float
    holds: bool
    worst: str


@dataclass(frozen=True)
class CheckResult:
    """What a check found.

    Attributes:
        id: of the check.
        title: of the check.
        statement: of the check.
        instances: evaluated, those with unmet hypotheses left out.
        skipped: instances that missed a hypothesis.
        worst_ratio: largest measured/bound (or bound/measured, of a lower bound); NaN if nothing was evaluated.
        passed: nothing exceeded `LIMIT`; False if nothing was evaluated.
        seconds: time taken.
        worst: where the worst ratio was; ``seed`` and instance number make it again.
        printed: the statement as printed.
        model: checkpoint, of checks on one.
        unmet: hypotheses that the checkpoint does not meet, with numbers; the theorem then says nothing about it.
        notes: what else was found or assumed on the way, with numbers.
    """

    id: str
    title: str
    statement: str
    instances: int
    skipped: int
    worst_ratio: float
    passed: bool
    seconds: float
    worst: str
    printed: Printed | None = None
    model: str | None = None
    unmet: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    KEYS: ClassVar = (
        *("id", "instances", "worst_ratio", "pass=passed", "title", "statement", "skipped", "seconds", "worst"),
        *("printed", "model", "unmet", "notes"),
    )

    @property
    def applies(self) -> bool:
        """Whether the hypotheses are met."""
        return not self.unmet


LIMIT = 1 + 1e-9
"""Ratios up to here hold: rounding of float64 in a bound that is attained."""


def verdict(ratio: float) -> bool:
    """Whether a worst ratio is one under which the statement holds."""
    return bool(math.isfinite(ratio) and ratio <= LIMIT)
