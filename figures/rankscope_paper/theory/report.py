"""All that a run of checks found, in one record, and the function that runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from rankscope.checkpoints import Checkpoint
from rankscope.engine.progress import Progress
from rankscope.errors import OptionError, unknown_choice
from rankscope_paper.experiments import EXPERIMENTS, ExperimentResult, run_experiment
from rankscope_paper.theory.checks import CHECKS
from rankscope_paper.theory.judge import judge
from rankscope_paper.theory.model import check_model
from rankscope_paper.theory.record import CheckResult
from rankscope_paper.theory.run import run_check

if TYPE_CHECKING:
    import pandas as pd

QUICK = 20
"""A quick run tries one in so many instances."""


@dataclass(frozen=True)
class TheoryReport:
    """Results of checks, on instances and on a checkpoint, and of experiments.

    Attributes:
        seed: of every random instance.
        quick: whether fewer instances were tried and experiments were reduced.
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
        """Whether nothing that was evaluated failed; unmet hypotheses are no failure."""
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
        progress: told how far it is.

    Raises:
        OptionError: an unknown id; an experiment asked of a checkpoint; a theorem asked by id of a checkpoint that does
            not meet its hypotheses.
    """
    chosen = list(dict.fromkeys(ids)) if ids else list(CHECKS)
    for name in chosen:
        if name not in known_ids():
            raise OptionError(unknown_choice("check", name, known_ids()))
    if checkpoint is not None:
        return _on_checkpoint(chosen, checkpoint, strict=bool(ids), seed=seed, quick=quick, progress=progress)
    checks: list[CheckResult] = []
    experiments: list[ExperimentResult] = []
    for name in chosen:
        if name in CHECKS:
            check = CHECKS[name]
            count = instances if instances is not None else check.instances // (QUICK if quick else 1)
            checks.append(run_check(check, count, seed, progress=progress))
        else:
            result, verdict = judge(name, run_experiment, quick=quick, seed=seed, progress=progress)
            experiments.append(result)
            checks.append(verdict)
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
