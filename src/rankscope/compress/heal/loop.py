"""transformers' Trainer on the distance to a teacher, and the callback that ends it; import it where a run begins."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import TrainerCallback

from rankscope.compress.heal.budget import Budget
from rankscope.compress.heal.config import HealConfig
from rankscope.compress.heal.losses import Distance
from rankscope.engine.progress import Progress
from rankscope.io.run_store import RunStore
from rankscope.train.callbacks.health import Health
from rankscope.train.callbacks.logs import Logs
from rankscope.train.callbacks.sealing import Sealing
from rankscope.train.config import PretrainConfig
from rankscope.train.events import Events
from rankscope.train.loop import Loop
from rankscope.train.meter import Clock, LossMeter

CLOCK = "clock.json"
"""Seconds of training up to a snapshot, in its folder."""


class Distillation(Loop):
    """Lowers the distance to a teacher at the rate that the budget gives."""

    def __init__(self, *args: Any, teacher: Any, distance: Distance, budget: Budget, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.teacher = teacher.to(self.args.device)
        self.distance = distance
        self.budget = budget

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Run teacher and student on one batch."""
        # One kernel for both: torch chooses by what needs gradients, and another one rounds differently, which is all
        # the loss that a student has that is its teacher.
        with sdpa_kernel(SDPBackend.MATH):
            loss = self.distance(model, self.teacher, inputs)
        return (loss, None) if return_outputs else loss

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Let the learning rate fall with the budget."""
        if self.lr_scheduler is None:
            rate, trained = self.budget.rate, self.optimizer if optimizer is None else optimizer
            assert trained is not None
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
                trained, lambda step: rate(step)
            )  # no method: torch would store it
            self._created_lr_scheduler = True
        return self.lr_scheduler


class Deadline(TrainerCallback):
    """Ends the healing with its budget, and asks for snapshots by the clock."""

    def __init__(self, budget: Budget, run: Path, save_seconds: float) -> None:
        self.budget, self.run, self.save_seconds = budget, run, save_seconds
        self.saved = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
        self.budget.begin()
        self.saved = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop, or ask for a snapshot, where it is time; the end gets one too."""
        if self.budget.over(state.global_step):
            control.should_training_stop = True
        if control.should_training_stop or time.monotonic() - self.saved >= self.save_seconds:
            control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Keep the time with the snapshot, before it is sealed."""
        folder = self.run / f"checkpoint-{state.global_step}"
        (folder / CLOCK).write_text(json.dumps({"seconds": self.budget.seconds()}) + "\n", encoding="utf-8")
        self.saved = time.monotonic()


def callbacks(
    plan: PretrainConfig, options: HealConfig, kept: RunStore, meter: LossMeter, budget: Budget, progress: Progress
) -> list[Any]:
    """What happens beside the steps: the deadline is first, so that the others see that the end has come."""
    run = kept.root
    return [
        Deadline(budget, run, options.save_seconds),
        Health(meter, kept),
        Logs(plan, run, meter, Clock(), Events(None), lambda step, _, what: progress(*budget.told(step), what)),
        Sealing(meter, run),
    ]


def seconds_before(folder: Path) -> float:
    """Seconds of training up to the snapshot in ``folder``."""
    return float(json.loads((folder / CLOCK).read_text(encoding="utf-8"))["seconds"])
