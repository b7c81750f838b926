"""The paper's own experiments (App. F), at published size or reduced: F.1 (Fig. 9), F.2 (Fig. 10), F.3 (Fig. 11)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rankscope.engine import Progress
from rankscope.errors import OptionError, unknown_choice
from rankscope_paper.experiments.f1 import F1Result, run_f1
from rankscope_paper.experiments.f2 import F2Result, run_f2
from rankscope_paper.experiments.f3 import F3Result, run_f3
from rankscope_paper.experiments.fit import Slope

ExperimentResult = F1Result | F2Result | F3Result


@dataclass(frozen=True)
class Experiment:
    """One experiment: its title, its figure in the paper, the function that runs it and the record that it returns."""

    title: str
    figure: str
    run: Callable[..., Any]
    kind: type[ExperimentResult]


EXPERIMENTS = {
    "f1": Experiment("error of truncated attention against σ and d", "9", run_f1, F1Result),
    "f2": Experiment("sparse sketches, one per head", "10", run_f2, F2Result),
    "f3": Experiment("rank of an attention layer's output against heads", "11", run_f3, F3Result),
}


def run_experiment(
    name: str, quick: bool = False, seed: int = 0, *, progress: Progress | None = None
) -> ExperimentResult:
    """Run one experiment of App. F.

    Args:
        name: ``f1``, ``f2`` or ``f3``.
        quick: a reduced size, the same code.
        seed: of every random matrix.
        progress: progress callback.

    Raises:
        OptionError: an unknown name.
    """
    if name not in EXPERIMENTS:
        raise OptionError(unknown_choice("experiment", name, EXPERIMENTS))
    result: ExperimentResult = EXPERIMENTS[name].run(quick, seed, progress=progress)
    return result


__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "ExperimentResult",
    "F1Result",
    "F2Result",
    "F3Result",
    "Slope",
    "run_experiment",
    "run_f1",
    "run_f2",
    "run_f3",
]
