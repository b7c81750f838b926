"""Specification and records of the tokenizer study's runs (component × setting × seed)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rankscope.errors import OptionError, check_least, unknown_choice
from rankscope_lab.tokenizers.forecasting import MODES

LINEAR, AUTOENCODER, VQ, COPY, FORECAST = "linear-regression", "autoencoder", "vq", "copy", "forecast"
COMPONENTS = (LINEAR, AUTOENCODER, VQ, COPY, FORECAST)
UPDATES = ("ema", "revived", "loss")
"""Codes learn by a moving average; by the codebook loss, unused ones starting again; by the codebook loss alone."""
EPOCHS = {LINEAR: 20, AUTOENCODER: 300, VQ: 30, COPY: 40, FORECAST: 20}
"""By default; an epoch of the copy task is 50 steps, one of forecasting 100."""
QUICK = {LINEAR: 2, AUTOENCODER: 20, VQ: 2, COPY: 2, FORECAST: 1}
_COST = {LINEAR: 1, AUTOENCODER: 1, VQ: 10, COPY: 15, FORECAST: 60}
"""Rough relative times of an epoch, for the progress bar."""


@dataclass(frozen=True)
class Task:
    """One run.

    Attributes:
        component: one of `COMPONENTS`.
        setting: what is varied in it, e.g. ``nonlinear``, ``256-ema``, ``learnt`` or ``one-shot-96-96``.
        epochs: at most.
        seed: of every random choice.
    """

    component: str
    setting: str
    epochs: int
    seed: int

    @property
    def id(self) -> str:
        """Name of its file.

        >>> Task("vq", "256-ema", 30, 1).id
        'vq-256-ema-e30-s1'
        """
        return f"{self.component}-{self.setting}-e{self.epochs}-s{self.seed}"

    @property
    def cost(self) -> int:
        """Share of the whole study's work, in no unit."""
        return _COST[self.component] * self.epochs


@dataclass(frozen=True)
class Plan:
    """Components and sizes of the runs asked for.

    Attributes:
        components: of `COMPONENTS`.
        codes: sizes of codebooks.
        updates: of `UPDATES`.
        seeds: runs per setting: 0, 1, ….
        epochs: of every run; None: `EPOCHS`.
        lookback: of the forecasts.
        horizon: of the forecasts.
        quick: `QUICK` epochs: to see that it runs, no result.
    """

    components: tuple[str, ...] = COMPONENTS
    codes: tuple[int, ...] = (64, 256, 1024)
    updates: tuple[str, ...] = UPDATES
    seeds: int = 3
    epochs: int | None = None
    lookback: int = 96
    horizon: int = 96
    quick: bool = False

    def __post_init__(self) -> None:
        """Validate the fields.

        Raises:
            OptionError: an unknown component or update, or a number out of range.
        """
        for name, values, known in (
            ("component", self.components, COMPONENTS),
            ("update", self.updates, UPDATES),
        ):
            for value in values:
                if value not in known:
                    raise OptionError(unknown_choice(name, value, known))
        for name in ("components", "updates", "codes"):
            if not getattr(self, name):
                raise OptionError(f"{name} is empty: give at least one.")
        check_least(self, 2, ("codes",))
        check_least(self, 1, ("seeds", "epochs", "lookback", "horizon"))

    def tasks(self) -> tuple[Task, ...]:
        """All runs, seed by seed within a setting."""
        return tuple(
            Task(component, setting, self.epochs or (QUICK if self.quick else EPOCHS)[component], seed)
            for component in dict.fromkeys(self.components)
            for setting in self._settings(component)
            for seed in range(self.seeds)
        )

    def _settings(self, component: str) -> Sequence[str]:
        if component == LINEAR:
            return ("sgd",)
        if component == AUTOENCODER:
            return ("linear", "nonlinear")
        if component == VQ:
            return [
                f"{codes}-{update}" for codes in dict.fromkeys(self.codes) for update in dict.fromkeys(self.updates)
            ]
        if component == COPY:
            return ("fresh", "learnt")
        return [f"{mode}-{self.lookback}-{self.horizon}" for mode in reversed(MODES)]


@dataclass(frozen=True)
class RunRecord:
    """Record of a finished task.

    Attributes:
        task: which.
        data: the table: name, rows, variables; empty for the copy task.
        error: on test data: mean squared error in squared standard deviations of training; of the copy task the share
            of wrong symbols. NaN where the run diverged.
        reference: the same error of what it is compared with: least squares, principal components, seasonal naive.
        diverged: it enters no mean.
        parameters: trained numbers.
        seconds: wall time.
        machine: device, threads.
        codes: of a codebook; 0 without.
        width: of tokens.
        used: codes that occur in the test rows.
        perplexity: of their use.
        eps_ranks: of the codebook, by ε.
        effective_rank: of the codebook.
        detail: curve, settings, spectra.
        digest: of the table's columns and values; empty for the copy task, and in records that were written without.
    """

    task: Task
    data: str
    error: float
    reference: float
    diverged: bool
    parameters: int
    seconds: float
    machine: str
    codes: int = 0
    width: int = 0
    used: int = 0
    perplexity: float = math.nan
    eps_ranks: Mapping[str, int] = field(default_factory=dict)
    effective_rank: float = math.nan
    detail: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""

    SCHEMA: ClassVar = "rankscope/lab-tokenizer-run@1"
