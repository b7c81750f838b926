"""What the study of tokenizers runs: component × setting × seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.errors import OptionError, unknown_choice
from rankscope_lab.tokenizers.forecasting import MODES

LINEAR, AUTOENCODER, VQ, COPY, FORECAST = "linear-regression", "autoencoder", "vq", "copy", "forecast"
COMPONENTS = (LINEAR, AUTOENCODER, VQ, COPY, FORECAST)
UPDATES = ("ema", "revived", "loss")
"""How codes learn: by a moving average; by the codebook loss, unused ones start again; by the codebook loss alone."""
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
    """What is asked for.

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
        """Refuse what cannot be run.

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
        if not self.components or not self.updates or not self.codes or min(self.codes) < 2:
            raise OptionError("at least one component, one update and one number of codes from 2 on are needed.")
        if min(self.seeds, self.epochs or 1, self.lookback, self.horizon) < 1:
            raise OptionError("seeds, epochs, lookback and horizon must be at least 1.")

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
