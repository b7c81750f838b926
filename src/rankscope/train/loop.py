"""transformers' Trainer with the data in order and a loss meter of its own; import it where a run begins."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import SequentialSampler
from transformers import Trainer
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from rankscope.train import processes
from rankscope.train.meter import LossMeter
from rankscope.train.passes import fast_loss, has_fast_pass


class Loop(Trainer):
    """Takes the series in order, counts every loss in ``meter``, and goes by its own peak rate, not a snapshot's."""

    def __init__(self, *args: Any, meter: LossMeter, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.meter = meter
        # T5's forward accepts any keyword and ignores `num_items_in_batch`. The Trainer takes the keywords for a sign
        # that the loss is divided by it, and would then forget to divide by micro-batches and processes.
        self.model_accepts_loss_kwargs = False
        self.fast = has_fast_pass(self.model) and not processes.joined() and not self.args.torch_compile
        self.remove_callback(PrinterCallback)
        self.remove_callback(ProgressCallback)

    def _get_train_sampler(self, *args: Any, **kwargs: Any) -> SequentialSampler:
        data: Any = self.train_dataset
        return SequentialSampler(data)

    def _load_optimizer_and_scheduler(self, checkpoint: Any) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        set_peak(self.optimizer, self.lr_scheduler, self.args.learning_rate)

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute the loss of one micro-batch, on a CPU through the passes written for it."""
        if not self.fast:
            return super().compute_loss(model, inputs, *args, **kwargs)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.args.bf16):
            return fast_loss(model, inputs)

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """Run one micro-batch forward and backward."""
        loss = super().training_step(*args, **kwargs)
        self.meter.add(loss)
        return loss


def set_peak(optimizer: Any, schedule: Any, peak: float) -> None:
    """Let an optimiser and its schedule go on with another peak rate than they were stored with, at the same step.

    Both remember the peak that they were made with; the share of it that a step has is the schedule's own.
    """
    shares = [share(schedule.last_epoch) for share in schedule.lr_lambdas]
    for group, share in zip(optimizer.param_groups, shares, strict=True):
        group["initial_lr"], group["lr"] = peak, peak * share
    schedule.base_lrs = [peak] * len(shares)
    schedule._last_lr = [group["lr"] for group in optimizer.param_groups]  # what the next log line tells
