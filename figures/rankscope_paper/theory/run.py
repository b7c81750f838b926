"""Run a check over its instances, remember the worst, and make any instance again."""

from __future__ import annotations

import dataclasses
import math
import time
import zlib
from typing import Any

import numpy as np
import torch

from rankscope.engine.progress import Progress, silent
from rankscope_paper.theory.record import Case, Check, CheckResult, Generator, Printed, verdict

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
        progress: told the number of instances done.
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
    return CheckResult(
        check.id,
        check.title,
        check.statement,
        instances=evaluated,
        skipped=count - evaluated,
        worst_ratio=worst if evaluated else math.nan,
        passed=evaluated > 0 and verdict(worst),
        seconds=time.perf_counter() - begun,
        worst=where,
        printed=printed,
    )


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
