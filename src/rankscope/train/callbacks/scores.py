"""Scores of the network while it trains: ``validation.csv``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from rankscope.engine.progress import Progress
from rankscope.train import processes
from rankscope.train.as_saved import as_saved
from rankscope.train.config import PretrainConfig
from rankscope.train.curves import SCORES, append_row
from rankscope.train.events import Events
from rankscope.train.meter import Clock


class Scores(TrainerCallback):
    """Scores the network every ``validation.every`` steps and at the end, in the main process."""

    def __init__(
        self,
        config: PretrainConfig,
        run: Path,
        validate: Callable[[Any], Mapping[str, float]],
        clock: Clock,
        events: Events,
        progress: Progress,
    ) -> None:
        self.config, self.run = config, run
        self.validate, self.clock = validate, clock
        self.events, self.progress = events, progress

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Score, before the snapshot of the same step is written."""
        if state.global_step % self.config.validation.every and not control.should_training_stop:
            return
        with self.clock.pause():
            processes.on_main(lambda: self._score(state.global_step, model))

    def _score(self, step: int, model: Any) -> None:
        self.progress(step, self.config.max_steps, f"scoring on {self.config.validation.suite}")
        with as_saved(model) as network:
            scores = {name: float(value) for name, value in self.validate(network).items()}
        append_row(self.run / SCORES, {"step": step, **scores})
        self.events.add(step, scores, group="validation")
        self.progress(
            step,
            self.config.max_steps,
            ", ".join(f"{name} {value:.3f}" for name, value in scores.items() if " " not in name),
        )
