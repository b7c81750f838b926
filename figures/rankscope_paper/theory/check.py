"""A statement of the paper (`Check`), tried on random and adversarial instances, each of which can be made again."""

from __future__ import annotations

import dataclasses
import math
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from rankscope.engine import Progress, silent
from rankscope_paper.experiments.matrices import Generator

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

    def result(
        self, evaluated: int, skipped: int, ratio: float, worst: str, seconds: float, printed: Printed | None
    ) -> CheckResult:
        """Result of evaluated and skipped instances, their worst ratio and where that was."""
        return CheckResult(
            self.id,
            self.title,
            self.statement,
            instances=evaluated,
            skipped=skipped,
            worst_ratio=ratio if evaluated else math.nan,
            passed=evaluated > 0 and verdict(ratio),
            seconds=seconds,
            worst=worst,
            printed=printed,
            unmet=() if evaluated else (f"none of {skipped} instances met them",),
        )


@dataclass(frozen=True)
class Printed:
    """Result of the statement as it is printed, where that differs from what is checked."""

    statement: str
    worst_ratio: float
    holds: bool
    worst: str


@dataclass(frozen=True)
class CheckResult:
    """Result of a check.

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
        unmet: hypotheses that the checkpoint, or every instance, does not meet; the theorem then says nothing about it.
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
        """True if the hypotheses are met."""
        return not self.unmet


LIMIT = 1 + 1e-9
"""Ratios up to here hold: rounding of float64 in a bound that is attained."""


def verdict(ratio: float) -> bool:
    """True if a worst ratio is one under which the statement holds."""
    return bool(math.isfinite(ratio) and ratio <= LIMIT)


CLIMBED = "climbed"
"""Suffix of instances that random changes pushed towards the bound."""
STEPS = 12
_CLIMB_EVERY = 25


def run_check(
    check: Check, instances: int | None = None, seed: int = 0, *, progress: Progress | None = None
) -> CheckResult:
    """Evaluate a check over random and adversarial instances.

    Kinds of instances take turns. One in 25 is changed at random for some steps, and each change is kept that brings
    the measured value nearer to the bound.

    Args:
        check: what to check.
        instances: how many; the check's own default without.
        seed: instance n is a function of seed, check and n.
        progress: called with the number of instances done.
    """
    count = check.instances if instances is None else instances
    report, begun = progress or silent, time.perf_counter()
    worst, where, evaluated = -math.inf, "", 0
    as_printed, as_printed_where = -math.inf, ""
    for n in range(count):
        if n % 100 == 0:
            report(n, count, check.id)
        case, kind = instance(check, n, seed)
        ratio = check.ratio(case)
        if ratio is None:
            continue
        evaluated, ratio = evaluated + 1, float(ratio)
        name = f"{kind}: {check.describe(case)} (instance {n}, seed {seed})"
        # NaN must count as the worst of all
        if not ratio <= worst:
            worst, where = ratio, name
        other = check.printed(case) if check.printed else None
        if other is not None and not other <= as_printed:
            as_printed, as_printed_where = float(other), name
    report(count, count, check.id)
    printed = None
    if check.printed is not None and as_printed_where:
        printed = Printed(check.printed_statement, as_printed, verdict(as_printed), as_printed_where)
    return check.result(evaluated, count - evaluated, worst, where, time.perf_counter() - begun, printed)


def instance(check: Check, n: int, seed: int = 0) -> tuple[Case, str]:
    """Instance n of a check, and its kind: the same for the same seed, whatever else ran before."""
    rng = np.random.default_rng([seed, zlib.crc32(check.id.encode()), n])
    kind = check.kinds[n % len(check.kinds)]
    case = check.draw(kind, rng)
    if check.mend is None or n % _CLIMB_EVERY != _CLIMB_EVERY - 1:
        return case, kind
    return _climb(check, case, rng), f"{kind}, {CLIMBED}"


def _climb(check: Check, case: Case, rng: Generator) -> Case:
    assert check.mend is not None
    best, score = case, check.ratio(case)
    for _ in range(STEPS):
        candidate = check.mend(_shaken(best, rng), rng)
        ratio = check.ratio(candidate)
        if ratio is not None and (score is None or ratio > score):
            best, score = candidate, ratio
    return best


def _shaken(case: Case, rng: Generator) -> Case:
    """A case whose matrices got noise of a tenth to a whole of their own size."""
    size = 10 ** rng.uniform(-1, 0)
    changed: dict[str, Any] = {}
    for field in dataclasses.fields(case):
        value = getattr(case, field.name)
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            noise = torch.from_numpy(rng.standard_normal(value.shape))
            changed[field.name] = value + size * value.std(correction=0) * noise
    return dataclasses.replace(case, **changed)
