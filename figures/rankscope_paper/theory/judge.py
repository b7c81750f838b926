"""Whether an experiment of App. F shows what the paper says it shows."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from rankscope.engine.progress import Progress
from rankscope_paper.experiments import EXPERIMENTS, ExperimentResult, F1Result, F2Result, F3Result
from rankscope_paper.theory.record import CheckResult, verdict

SLACK = 0.05
"""Slopes of Fig. 9 must be within this of 1 and ½."""
RISING = 1e-3
"""Largest ε at which ranks must rise with h (Fig. 11): above it the spectrum of Y is still that of X."""


def judge(
    name: str,
    run: Callable[..., ExperimentResult],
    *,
    quick: bool,
    seed: int,
    progress: Progress | None = None,
) -> tuple[ExperimentResult, CheckResult]:
    """Run an experiment, and measure what it was to show as a ratio that must not exceed 1."""
    begun = time.perf_counter()
    result = run(name, quick, seed, progress=progress)
    statement, count, ratio, worst, notes = _found(result)
    check = CheckResult(
        name,
        f"App. F, Fig. {EXPERIMENTS[name].figure}",
        statement,
        instances=count,
        skipped=0,
        worst_ratio=ratio,
        passed=verdict(ratio),
        seconds=time.perf_counter() - begun,
        worst=worst,
        notes=notes,
    )
    return result, check


Finding = tuple[str, int, float, str, tuple[str, ...]]


def _found(result: ExperimentResult) -> Finding:
    if isinstance(result, F1Result):
        return _slopes(result)
    return _sketches(result) if isinstance(result, F2Result) else _ranks(result)


def _slopes(result: F1Result) -> Finding:
    named = {f"σ_d = {reading.name}": (reading.slope, 1.0) for reading in result.readings}
    named["against d"] = (result.width.slope, 0.5)
    off = {name: abs(slope.value - aim) / SLACK for name, (slope, aim) in named.items()}
    worst = max(off, key=off.__getitem__)
    count = sum(len(run.ranks) for reading in result.readings for run in reading.runs) + result.width.error.size
    notes = tuple(f"slope {name}: {s.value:.3f} (95 %: {s.low:.3f} to {s.high:.3f})" for name, (s, _) in named.items())
    notes += tuple(
        f"σ_d = {reading.name}, at all ranks: {reading.slope_all.value:.3f}; over the norm of all that is cut: "
        f"{reading.slope_tail.value:.3f}"
        for reading in result.readings
    )
    return f"slopes 1 and ½ within {SLACK}", count, off[worst], worst, notes


def _sketches(result: F2Result) -> Finding:
    falling, where = _steps(result.sparse.mean(axis=1)[::-1], result.heads[::-1])
    s = result.slope
    notes = (
        f"rank reached grows as h^{s.value:.2f} (95 %: {s.low:.2f} to {s.high:.2f})",
        f"sparse over dense distance: {float((result.sparse / result.dense).min()):.2f} to "
        f"{float((result.sparse / result.dense).max()):.2f}",
    )
    return "the distance falls as h grows", result.sparse.size, falling, where, notes


def _ranks(result: F3Result) -> Finding:
    ranks = result.rank_out.mean(axis=0)
    judged = {eps: column for column, eps in enumerate(result.eps) if eps <= RISING}
    steps = {eps: _steps(ranks[:, column], result.heads) for eps, column in judged.items()}
    worst = max(steps, key=lambda eps: steps[eps][0])
    notes = tuple(
        f"ε = {eps:g}: rank {result.rank_in[column]} of X, of Y {', '.join(f'{r:.0f}' for r in ranks[:, column])}"
        for column, eps in enumerate(result.eps)
    )
    where = f"ε = {worst:g}, {steps[worst][1]}"
    return f"ε-ranks of Y never fall as h grows, ε ≤ {RISING:g}", result.rank_out.size, steps[worst][0], where, notes


def _steps(values: np.ndarray, heads: np.ndarray) -> tuple[float, str]:
    """Largest value over the next one, at most 1 where they never fall."""
    ratios = values[:-1] / values[1:]
    row = int(np.argmax(ratios))
    return float(ratios[row]), f"from h = {heads[row]} to {heads[row + 1]}"
