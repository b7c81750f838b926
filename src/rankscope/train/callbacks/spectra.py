"""Spectra at the steps that the config names."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from rankscope.train import processes
from rankscope.train.config import Snapshots
from rankscope.train.meter import Clock
from rankscope.train.spectra import SpectraLog, due


class Spectra(TrainerCallback):
    """Logs in the main process, and lets no snapshot count whose spectra are not on disk."""

    def __init__(self, plan: Snapshots, log: SpectraLog, clock: Clock) -> None:
        self.plan, self.log, self.clock = plan, log, clock

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Log the start."""
        if state.global_step == 0:
            self._take(0, model)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Log a step."""
        self._take(state.global_step, model)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Wait for what is under way."""
        self.log.finish()

    def _take(self, step: int, model: Any) -> None:
        if due(self.plan, step) and processes.is_main():
            with self.clock.pause():
                self.log.take(step, model)
