"""Snapshots count once everything in them is on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from rankscope.train import processes
from rankscope.train.meter import LossMeter
from rankscope.train.run_folder import seal, tidy


class Sealing(TrainerCallback):
    """Seals every snapshot that the Trainer has written, then removes the oldest ones."""

    def __init__(self, meter: LossMeter, run: Path) -> None:
        self.meter = meter
        self.run = run

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Let the cadence of this call hold: a resumed state brings its old one."""
        state.logging_steps, state.save_steps = args.logging_steps, args.save_steps

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Wait for all processes' files, then seal."""
        processes.wait()
        total, steps = self.meter.state()

        def finish() -> None:
            seal(self.run / f"checkpoint-{state.global_step}", total, steps)
            tidy(self.run)

        processes.on_main(finish)
