"""Log lines: ``loss.csv``, the progress of the command line, and TensorBoard event files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from rankscope.engine.progress import Progress
from rankscope.train import processes
from rankscope.train.config import PretrainConfig
from rankscope.train.curves import LOSSES, append_row
from rankscope.train.events import Events
from rankscope.train.meter import Clock, LossMeter, series_per_step, tokens_per_series


class Logs(TrainerCallback):
    """Writes a line every ``log_steps`` steps, and one for the rest at the end."""

    def __init__(
        self, config: PretrainConfig, run: Path, meter: LossMeter, clock: Clock, events: Events, progress: Progress
    ) -> None:
        self.config, self.run = config, run
        self.meter, self.clock = meter, clock
        self.events, self.progress = events, progress
        self.logged = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
        self.logged = state.global_step
        self.clock.take()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ask for a last line where the steps are no multiple of ``log_steps``."""
        control.should_log = control.should_log or control.should_training_stop

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Write the line in the main process; all of them take part in the mean."""
        if not logs or "loss" not in logs:
            return
        step = state.global_step
        loss = self.meter.take()
        series = series_per_step(self.config) * (step - self.logged) / self.clock.take()
        self.logged = step
        if not processes.is_main():
            return
        row = {"loss": loss, "learning_rate": logs.get("learning_rate"), "grad_norm": logs.get("grad_norm")}
        append_row(self.run / LOSSES, {"step": step, **row})
        tokens = series * tokens_per_series(self.config)
        self.events.add(step, {**row, "series_per_second": series, "tokens_per_second": tokens})
        self.progress(
            step, self.config.max_steps, f"loss {loss:.3f}, {short(series)} series/s, {short(tokens)} tokens/s"
        )


def short(value: float) -> str:
    """Write a rate in three digits.

    >>> short(3.14159), short(36.2), short(4712.0), short(2.5e6)
    ('3.1', '36', '4.7k', '2.5M')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.1f}{letter}"
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"
