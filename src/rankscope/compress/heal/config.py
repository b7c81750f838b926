"""Records of a healing: its config, the budget of steps or seconds that follows from it, and its report."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

from rankscope.choices import PRECISIONS, TRAINED
from rankscope.errors import DataError, OptionError, check_count, check_least, unknown_choice
from rankscope.io import codec
from rankscope.series import Columns

MINUTES = 5.0
_POSITIVE = ("minutes", "learning_rate", "max_grad_norm")
_LEAST_ONE = ("batch_size", "log_steps")
FILE = "heal.json"


@dataclass(frozen=True)
class HealConfig:
    """A healing.

    Attributes:
        minutes: time to train; the learning rate falls to zero at its end. What is stopped and resumed goes on with the
            time that is left. Five where no steps are given.
        steps: optimiser steps in place of minutes: the result is then a function of the seed and the precision.
        train: ``all`` parameters, or only those of the ``compressed`` matrices.
        truth: share of the loss that looks at the true future values, in place of the teacher's answer; see
            `rankscope.compress.heal.distillation`. With 0 a student that is its teacher stays it, bit for bit.
        learning_rate: peak learning rate of AdamW.
        batch_size: series per step.
        warmup: share of the healing over which the learning rate rises.
        beta2: second-moment decay of AdamW.
        max_grad_norm: gradients are clipped to this norm.
        files: the user's series files, Parquet, CSV, JSONL or Arrow; none by default.
        file_share: share of series that are windows of those files; of a Chronos-2, of those outside groups.
        columns: non-default column names of the files.
        freq: frequency of the files (default: inferred).
        precision: ``auto`` is bf16 where the device multiplies it faster, else fp32.
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
    columns: Columns | None = None
    freq: str | None = None
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
        for name in (*_LEAST_ONE, "steps"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_count("seed", self.seed, 0)
        check_least(self, 0, ("save_seconds",))
        if isinstance(self.files, str):
            raise OptionError(f"files must be a list of files: give [{self.files!r}].")
        for name in ("warmup", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise OptionError(f"{name} is {getattr(self, name)}: it must lie in [0, 1).")
        if not 0 <= self.truth <= 1:
            raise OptionError(f"truth is {self.truth}: it is a share, from 0 to 1.")
        if not 0 < self.file_share <= 1:
            raise OptionError(f"file_share is {self.file_share}: it must lie in (0, 1].")


class Budget:
    """Elapsed share of a healing.

    By steps it is a function of the step alone, so a resumed healing repeats an undisturbed one exactly. By time it is
    that of the seconds of training, those before a stop included.
    """

    def __init__(self, config: HealConfig, before: float = 0.0) -> None:
        """Take the config, and the seconds that were trained before the snapshot the healing goes on from."""
        self.steps = config.steps
        self.total = 60 * (config.minutes or 0.0)
        self.warmup = config.warmup
        self.before = before
        self.begun: float | None = None

    def begin(self) -> None:
        """Start the clock."""
        self.begun = perf_counter()

    def seconds(self) -> float:
        """Seconds of training in all."""
        return self.before + (0.0 if self.begun is None else perf_counter() - self.begun)

    def over(self, step: int) -> bool:
        """Return True if the healing ends after ``step`` steps."""
        return step >= self.steps if self.steps is not None else self.seconds() >= self.total

    def share(self, step: int) -> float:
        """Share that is over when step number ``step``, from 0, begins; by steps the first one begins above 0."""
        if self.steps is not None:
            return min((step + 1) / (self.steps + 1), 1.0)
        return min(self.seconds() / self.total, 1.0)

    def rate(self, step: int) -> float:
        """Learning rate of step number ``step`` as a share of the peak: a linear rise, then a linear fall to 0."""
        share = self.share(step)
        if share < self.warmup:
            return share / self.warmup
        return (1 - share) / (1 - self.warmup)

    def progress(self, step: int) -> tuple[int, int]:
        """Return steps or seconds done and their total, for a progress bar."""
        if self.steps is not None:
            return step, self.steps
        return min(int(self.seconds()), int(self.total)), max(int(self.total), 1)


@dataclass(frozen=True)
class HealReport:
    """A healing: of what, by whom, how long, and how far from the teacher at its beginning and its end.

    Attributes:
        model: name the student was opened by.
        teacher: name the teacher was opened by.
        out: folder that was written.
        family: family of both.
        loss: ``token-kl`` (nats per token) or ``quantile-l1`` (deviations of the history; of a Chronos-2
            with ``use_arcsinh`` their arcsinh).
        steps: optimiser steps.
        seconds: time of training, that before a stop included.
        first_loss: mean loss of the first log interval.
        last_loss: mean loss of the last one.
        parameters: numbers in the model.
        trained_parameters: those that were trained.
        options: the config.
        fingerprints: of the weights of ``student`` and ``teacher``, and of the user's ``data``, where there are some.
        precision: ``fp32`` or ``bf16``.
        corpus: version of the generated series; None in older reports.
        changes: what was lowered where a healing that had diverged went on.
        earlier: reports of the healings that the student had had before, the oldest first.
    """

    model: str
    teacher: str
    out: str
    family: str
    loss: str
    steps: int
    seconds: float
    first_loss: float
    last_loss: float
    parameters: int
    trained_parameters: int
    options: HealConfig
    fingerprints: dict[str, str]
    precision: str
    corpus: int | None = None
    changes: tuple[dict[str, Any], ...] = ()
    earlier: tuple[dict[str, Any], ...] = field(default=(), repr=False)

    SCHEMA: ClassVar = "rankscope/heal@1"


def read_report(folder: Path) -> HealReport | None:
    """Read the report in a healed folder; None where there is none that can be read."""
    with contextlib.suppress(DataError):
        return codec.read(HealReport, folder / FILE)
    return None
