"""Checks of the paper's statements, on instances or on a checkpoint, and of its experiments, in one record."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rankscope.checkpoints import Checkpoint
from rankscope.engine import Progress
from rankscope.errors import OptionError, unknown_choice
from rankscope_paper.experiments import EXPERIMENTS, ExperimentResult, F1Result, F2Result, F3Result, run_experiment
from rankscope_paper.theory.check import CheckResult, run_check, verdict
from rankscope_paper.theory.checks import CHECKS
from rankscope_paper.theory.model import check_model

if TYPE_CHECKING:
    import pandas as pd

QUICK = 20
"""A quick run tries one in so many instances."""
SLACK = 0.05
"""Slopes of Fig. 9 must be within this of 1 and ½."""
RISING = 1e-3
"""Largest ε at which ranks must rise with h (Fig. 11): above it the spectrum of Y is still that of X."""


@dataclass(frozen=True)
class TheoryReport:
    """Results of checks, on instances and on a checkpoint, and of experiments.

    Attributes:
        seed: of every random instance.
        quick: fewer instances were tried and experiments were reduced.
        checks: one per check; experiments have one too, which says whether they show what the paper shows.
        experiments: the experiments' own results.
    """

    seed: int
    quick: bool
    checks: tuple[CheckResult, ...]
    experiments: tuple[ExperimentResult, ...] = ()

    SCHEMA: ClassVar = "rankscope/theory@1"
    KEYS: ClassVar = ("seed", "quick", "pass=passed", "checks", "experiments?")

    @property
    def passed(self) -> bool:
        """True if nothing that was evaluated failed; unmet hypotheses are no failure."""
        return all(check.passed for check in self.checks if check.applies)

    def without_experiments(self) -> TheoryReport:
        """The report without the experiments' data, as ``--json`` prints it."""
        return replace(self, experiments=())

    def to_frame(self) -> pd.DataFrame:
        """One row per check."""
        import pandas as pd

        names = ("id", "title", "model", "instances", "skipped", "worst_ratio", "passed", "seconds", "worst")
        rows = [
            [
                *(getattr(check, name) for name in names),
                check.printed.worst_ratio if check.printed else None,
                "; ".join(check.unmet),
            ]
            for check in self.checks
        ]
        return pd.DataFrame(rows, columns=[*names, "printed_worst_ratio", "unmet"])


def known_ids() -> tuple[str, ...]:
    """Every id that `run_theory` takes."""
    return (*CHECKS, *EXPERIMENTS)


def run_theory(
    ids: Sequence[str] | None = None,
    *,
    checkpoint: Checkpoint | None = None,
    instances: int | None = None,
    quick: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> TheoryReport:
    """Check statements of the paper on instances, or on a checkpoint.

    Args:
        ids: keys of `CHECKS` and `EXPERIMENTS`; all checks without.
        checkpoint: check the theorems on this model's weights and activations in place of instances.
        instances: per check; each check's own number without.
        quick: a twentieth of the instances, experiments at reduced size.
        seed: of every instance.
        progress: progress callback.

    Raises:
        OptionError: an unknown id; options that contradict each other; an experiment asked of a checkpoint; a theorem
            asked by id of a checkpoint that does not meet its hypotheses.
    """
    chosen = list(dict.fromkeys(ids)) if ids else list(CHECKS)
    for name in chosen:
        if name not in known_ids():
            raise OptionError(unknown_choice("check", name, known_ids()))
    if checkpoint is not None:
        return _on_checkpoint(chosen, checkpoint, strict=bool(ids), seed=seed, quick=quick, progress=progress)
    tried = [name for name in chosen if name in CHECKS]
    if instances is not None and not tried:
        raise OptionError("--instances has no meaning for experiments: leave it out, or name a theorem.")
    if instances is not None and quick and len(tried) == len(chosen):
        raise OptionError("--quick and --instances both set the number of instances: leave one out.")
    checks: list[CheckResult] = []
    experiments: list[ExperimentResult] = []
    for name in chosen:
        if name in CHECKS:
            check = CHECKS[name]
            count = instances if instances is not None else check.instances // (QUICK if quick else 1)
            checks.append(run_check(check, count, seed, progress=progress))
        else:
            result, judged = judge(name, run_experiment, quick=quick, seed=seed, progress=progress)
            experiments.append(result)
            checks.append(judged)
    return TheoryReport(seed, quick, tuple(checks), tuple(experiments))


def _on_checkpoint(
    ids: Sequence[str], checkpoint: Checkpoint, *, strict: bool, seed: int, quick: bool, progress: Progress | None
) -> TheoryReport:
    for name in ids:
        if name in EXPERIMENTS:
            raise OptionError(f"{name} is an experiment on random matrices: leave out --model.")
    checks = check_model(checkpoint, ids, n=2 if quick else 8, seed=seed, progress=progress)
    for check in checks:
        if strict and not check.applies:
            unmet = "; ".join(check.unmet)
            raise OptionError(
                f"hypotheses of {check.title} are not met by {checkpoint.source}: {unmet}. "
                f"Without the id {check.id} the others are checked."
            )
    return TheoryReport(seed, quick, checks)


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
    notes = tuple(f"slope {name}: {slope.text(3)}" for name, (slope, _) in named.items())
    notes += tuple(
        f"σ_d = {reading.name}, at all ranks: {reading.slope_all.value:.3f}; over the norm of all that is cut: "
        f"{reading.slope_tail.value:.3f}"
        for reading in result.readings
    )
    return f"slopes 1 and ½ within {SLACK}", count, off[worst], worst, notes


def _sketches(result: F2Result) -> Finding:
    falling, where = _steps(result.sparse.mean(axis=1)[::-1], result.heads[::-1])
    notes = (
        f"rank reached grows as h^{result.slope.text(2)}",
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
