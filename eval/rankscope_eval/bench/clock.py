"""Times of folders over a model's, for a search by time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rankscope.checkpoints import Checkpoint
from rankscope.engine import Progress, silent
from rankscope_eval.bench.case import Case, Settings
from rankscope_eval.bench.children import CaseError
from rankscope_eval.bench.running import place, run_bench

ROUNDS, AT_ONCE = 5, 4
"""Alternating rounds, and models in memory at once besides the original."""


class Clock:
    """Times folders beside the original, in alternating rounds of one benchmark; see `run_bench`.

    Args:
        original: denominator of the times.
        batch: series that are forecast at once.
        device: where models run.
        progress: called with (done, total, what).

    Attributes:
        conditions: what the times hold for; complete once something was timed.
    """

    def __init__(self, original: Checkpoint, batch: int, device: str = "cpu", progress: Progress = silent) -> None:
        self.original = Case(str(original.folder), "auto")
        self.settings = Settings(batches=(batch,), rounds=ROUNDS, device=device)
        self.progress = progress
        self.conditions: dict[str, str] = {}

    def milliseconds(self) -> float:
        """Time of a forecast by the original."""
        (row,) = run_bench([self.original], self.settings).rows
        return 1e3 * row.seconds.median

    def __call__(self, folders: Sequence[Path]) -> list[float]:
        """Median of the ratios to the original's time, round by round.

        Raises:
            CaseError: a folder cannot be timed.
        """
        found: list[float] = []
        for start in range(0, len(folders), AT_ONCE):
            self.progress(start, len(folders), "timing models")
            cases = [Case(str(folder), "auto") for folder in folders[start : start + AT_ONCE]]
            report = run_bench([self.original, *cases], self.settings, baseline=self.original)
            if report.failures:
                raise CaseError(report.failures[0].reason)
            original = next(row for row in report.rows if row.model == self.original.model)
            self.conditions |= {**here(self.settings.device), "threads": str(original.threads)}
            self.conditions |= {"runtime": original.runtime, "batch": str(original.batch)}
            labels = {row.model: row.label for row in report.rows}
            ratios = {one.label: one.seconds.median for one in report.ratios}
            found += [ratios[labels[case.model]] for case in cases]
        return found


def here(device: str) -> dict[str, str]:
    """Return this machine's processor, cores and device as text, for times that hold there."""
    return {name: str(value) for name, value in place(device).items()}
