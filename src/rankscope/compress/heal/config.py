"""One dataclass says everything about a healing but the two models."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rankscope.choices import PRECISIONS, TRAINED
from rankscope.errors import OptionError, unknown_choice

MINUTES = 5.0
_POSITIVE = ("minutes", "learning_rate", "max_grad_norm")
_LEAST_ONE = ("batch_size", "log_steps")


@dataclass(frozen=True)
class HealConfig:
    """A healing.

    Attributes:
        minutes: time to train; the learning rate falls to zero at its end. What is stopped and resumed goes on with the
            time that is left. Five where no steps are given.
        steps: optimiser steps in place of minutes: the result is then a function of the seed.
        train: ``all`` parameters, or only those of the ``compressed`` matrices.
        truth: share of the loss that looks at the values that did follow, in place of the teacher's answer; see
            `rankscope.compress.heal.losses`. With 0 a student that is its teacher stays it, bit for bit.
        learning_rate: peak learning rate of AdamW.
        batch_size: series per step.
        warmup: share of the healing over which the learning rate rises.
        beta2: second-moment decay of AdamW.
        max_grad_norm: gradients are clipped to this norm.
        files: the user's series files, Parquet, CSV, JSONL or Arrow; none by default.
        file_share: share of series that are windows of those files.
        precision: ``auto`` is bf16 where the device has it natively (CUDA), else fp32.
        log_steps: steps between log lines.
        save_seconds: seconds between snapshots from which a stopped healing goes on; 0 for one after every step.
        seed: of the generated series.
    """

    minutes: float | None = None
    steps: int | None = None
    train: str = "all"
    truth: float = 0.5
    learning_rate: float = 4e-4
    batch_size: int = 32
    warmup: float = 0.05
    beta2: float = 0.98
    max_grad_norm: float = 1.0
    files: tuple[str, ...] = ()
    file_share: float = 0.5
    precision: str = "auto"
    log_steps: int = 10
    save_seconds: float = 60.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.minutes is not None and self.steps is not None:
            raise OptionError("give minutes or steps, not both: e.g. minutes 5.")
        if self.minutes is None and self.steps is None:
            object.__setattr__(self, "minutes", MINUTES)
        if self.train not in TRAINED:
            raise OptionError(unknown_choice("train", self.train, TRAINED))
        if self.precision not in PRECISIONS:
            raise OptionError(unknown_choice("precision", self.precision, PRECISIONS))
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise OptionError(f"{name} is {value}: it must be above 0.")
        for name in _LEAST_ONE:
            if getattr(self, name) < 1:
                raise OptionError(f"{name} is {getattr(self, name)}: it must be at least 1.")
        if self.steps is not None and self.steps < 1:
            raise OptionError(f"steps is {self.steps}: it must be at least 1.")
        for name, low in (("save_seconds", 0.0), ("seed", 0)):
            if not getattr(self, name) >= low:
                raise OptionError(f"{name} is {getattr(self, name)}: it must be at least {low:g}.")
        for name in ("warmup", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise OptionError(f"{name} is {getattr(self, name)}: it must lie in [0, 1).")
        if not 0 <= self.truth <= 1:
            raise OptionError(f"truth is {self.truth}: it is a share, from 0 to 1.")
        if not 0 < self.file_share <= 1:
            raise OptionError(f"file_share is {self.file_share}: it must lie in (0, 1].")
