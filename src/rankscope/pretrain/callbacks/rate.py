"""The peak learning rate is the config's, also where a snapshot remembers another one."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback


class Rate(TrainerCallback):
    """Sets the rate once optimiser and schedule have been read from a snapshot; nothing changes where it is the same.

    Both store the peak rate they were made with. The schedule, as a share of the peak, is made from the config.
    """

    def __init__(self, peak: float) -> None:
        self.peak = peak

    def on_train_begin(
        self, args: Any, state: Any, control: Any, optimizer: Any = None, lr_scheduler: Any = None, **kwargs: Any
    ) -> None:
        """Let the next step, and all after it, go by the config's peak."""
        shares = [share(lr_scheduler.last_epoch) for share in lr_scheduler.lr_lambdas]
        for group, share in zip(optimizer.param_groups, shares, strict=True):
            group["initial_lr"], group["lr"] = self.peak, self.peak * share
        lr_scheduler.base_lrs = [self.peak] * len(shares)
        lr_scheduler._last_lr = [group["lr"] for group in optimizer.param_groups]  # what the next log line tells
