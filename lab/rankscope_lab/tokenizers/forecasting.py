"""Forecasting with the encoder–decoder transformer, autoregressive or direct, compared with seasonal naive."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.engine import Progress, silent
from rankscope.engine.randomness import seeded
from rankscope.errors import OptionError, check_least, unknown_choice
from rankscope_lab.data.windows import ForecastData, Windows, seasonal_naive
from rankscope_lab.kernels import accelerate
from rankscope_lab.runs import count_parameters
from rankscope_lab.tokenizers.parts import Descent
from rankscope_lab.tokenizers.transformer import Shape, Transformer, shifted, write

SCORED = 256
"""Windows per pass when errors are measured."""


@dataclass(frozen=True)
class Errors:
    """Mean errors over windows, steps and variables, in standard deviations of training.

    Attributes:
        windows: how many.
        mse: mean squared error.
        mae: mean absolute error.
    """

    windows: int
    mse: float
    mae: float


@torch.no_grad()
def errors(windows: Windows, forecast: Callable[[Tensor], Tensor], apart: int = 1) -> Errors:
    """Errors over the windows that begin ``apart`` rows from one another."""
    squared = absolute = 0.0
    rows = torch.arange(0, len(windows), apart)
    count = 0
    for part in rows.split(SCORED):
        past, future = windows.batch(part)
        off = (forecast(past) - future).double()
        squared, absolute, count = (
            squared + float(off.square().sum()),
            absolute + float(off.abs().sum()),
            count + off.numel(),
        )
    return Errors(len(rows), squared / count, absolute / count)


STEPWISE, ONE_SHOT = "stepwise", "one-shot"
MODES = (STEPWISE, ONE_SHOT)


@dataclass(frozen=True)
class ForecastSettings:
    """The forecaster and its training.

    Attributes:
        mode: ``stepwise``: the decoder reads the values before each step (teacher forcing in training, its own
            forecasts afterwards); ``one-shot``: it reads a learned vector per step and writes all steps at once.
        lookback: steps that are read.
        horizon: steps that are written.
        batch_size: windows per step of training.
        learning_rate: peak of Adam's.
        epochs: the weights of the epoch with the lowest validation error are kept.
        steps_per_epoch: random windows are drawn for so many batches.
        seed: of every random choice.
        centred: the transformer sees values less the mean of their look-back, and forecasts get it back: levels that
            training never saw are then no news.
        shape: of the transformer.
    """

    mode: str = ONE_SHOT
    lookback: int = 96
    horizon: int = 96
    batch_size: int = 32
    learning_rate: float = 5e-4
    epochs: int = 10
    steps_per_epoch: int = 100
    seed: int = 0
    centred: bool = True
    shape: Shape = field(default_factory=Shape)

    def __post_init__(self) -> None:
        """Validate the fields.

        Raises:
            OptionError: an unknown mode, or a number out of range.
        """
        if self.mode not in MODES:
            raise OptionError(unknown_choice("mode", self.mode, MODES))
        check_least(self, 1, ("lookback", "horizon", "batch_size", "epochs", "steps_per_epoch"))


@dataclass(frozen=True)
class ForecastResult:
    """Result of a trained forecaster.

    Attributes:
        settings: what was asked for.
        points: (epoch, training loss, validation loss), both under teacher forcing where it applies.
        daily: test windows that begin a day apart, written as the mode says.
        daily_naive: the same windows, each step the value of one season earlier.
        every: all test windows; None for ``stepwise``, whose every step is a pass of the decoder.
        every_naive: likewise the seasonal naive on all of them.
        parameters: trained numbers.
        model: the weights that were kept.
    """

    settings: ForecastSettings
    points: tuple[tuple[int, float, float], ...]
    daily: Errors
    daily_naive: Errors
    every: Errors | None
    every_naive: Errors
    parameters: int
    model: Forecaster = field(repr=False, compare=False)

    KEYS: ClassVar = ("settings", "points", "daily", "daily_naive", "every", "every_naive", "diverged")

    @property
    def diverged(self) -> bool:
        """A loss or an error was not finite."""
        losses = [loss for _, *pair in self.points for loss in pair]
        return not all(map(math.isfinite, (*losses, self.daily.mse)))


class Queries(nn.Module):
    """A learned vector per step in the place of a target; what is passed in only says how many steps."""

    def __init__(self, horizon: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(horizon, d_model) * 0.02)

    def forward(self, target: Float[Tensor, "batch steps variables"]) -> Float[Tensor, "batch steps d_model"]:
        """The vectors of the first steps, for every sequence of the batch."""
        return self.weight[: target.shape[1]].expand(len(target), -1, -1)


class Forecaster(nn.Module):
    """Reads all variables of a step as one token and writes all variables of the steps that follow."""

    def __init__(self, settings: ForecastSettings, variables: int) -> None:
        super().__init__()
        shape, d_model = settings.shape, settings.shape.d_model
        self.mode, self.horizon, self.centred = settings.mode, settings.horizon, settings.centred
        target = nn.Linear(variables, d_model) if self.mode == STEPWISE else Queries(self.horizon, d_model)
        self.transformer = Transformer(
            shape,
            nn.Linear(variables, d_model),
            target,
            nn.Linear(d_model, variables),
            max(settings.lookback, settings.horizon),
            causal=self.mode == STEPWISE,
        )

    def forward(
        self, past: Float[Tensor, "batch lookback variables"], future: Float[Tensor, "batch horizon variables"]
    ) -> Float[Tensor, "batch horizon variables"]:
        """Outputs for a loss: under teacher forcing, where there is something to force."""
        level = self._level(past)
        past = past - level
        return self.transformer(past, shifted(future - level, past[:, -1:])) + level

    def forecast(self, past: Float[Tensor, "batch lookback variables"]) -> Float[Tensor, "batch horizon variables"]:
        """Forecast from the past alone; the decoder starts at the last value."""
        level = self._level(past)
        past = past - level
        last = past[:, -1:]
        if self.mode == STEPWISE:
            return write(self.transformer, past, last, self.horizon, lambda step: step) + level
        return self.transformer(past, last.expand(-1, self.horizon, -1)) + level

    def _level(self, past: Float[Tensor, "batch lookback variables"]) -> Float[Tensor, "batch 1 variables"]:
        mean = past.mean(1, keepdim=True)
        return mean if self.centred else torch.zeros_like(mean)


def train_forecaster(
    data: ForecastData, settings: ForecastSettings | None = None, *, progress: Progress | None = None
) -> ForecastResult:
    """Train by the mean squared error, keep the best epoch, and score it on the test windows beside the seasonal naive.

    Args:
        data: windows of the settings' look-back and horizon; the device is that of its values.
        settings: forecaster and training.
        progress: called with the epochs done.

    Raises:
        OptionError: the windows have other lengths than the settings.
    """
    chosen, report = settings or ForecastSettings(), progress or silent
    if (data.train.lookback, data.train.horizon) != (chosen.lookback, chosen.horizon):
        raise OptionError(
            f"windows of {data.train.lookback} + {data.train.horizon} steps, but settings of {chosen.lookback} + "
            f"{chosen.horizon}: cut them alike."
        )
    device = data.train.values.device
    with seeded(chosen.seed):
        model = Forecaster(chosen, len(data.columns)).to(device)
        accelerate(model)
        points = _train(model, data, chosen, report)
    model.eval()
    season = data.season

    def naive(past: Tensor) -> Tensor:
        return seasonal_naive(past, chosen.horizon, season)

    test, one_shot = data.test, chosen.mode == ONE_SHOT
    return ForecastResult(
        chosen,
        points,
        errors(test, model.forecast, season),
        errors(test, naive, season),
        errors(test, model.forecast) if one_shot else None,
        errors(test, naive),
        count_parameters(model),
        model,
    )


def _train(
    model: Forecaster, data: ForecastData, settings: ForecastSettings, report: Progress
) -> tuple[tuple[int, float, float], ...]:
    """Train in place; the model ends with the weights of the best epoch."""
    steps = settings.steps_per_epoch
    descent = Descent(model.parameters(), settings.learning_rate, settings.epochs * steps)
    points: list[tuple[int, float, float]] = []
    best, kept = math.inf, copy.deepcopy(model.state_dict())
    for epoch in range(1, settings.epochs + 1):
        model.train()
        total = 0.0
        for _ in range(steps):
            past, future = data.train.batch(torch.randint(len(data.train), (settings.batch_size,)))
            total += descent.step(F.mse_loss(model(past, future), future))
        points.append((epoch, total / steps, _validation_loss(model, data.validation)))
        report(epoch, settings.epochs, f"validation loss {points[-1][2]:.4f}")
        if not math.isfinite(total + points[-1][2]):
            break
        if points[-1][2] < best:
            best, kept = points[-1][2], copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)
    return tuple(points)


@torch.no_grad()
def _validation_loss(model: Forecaster, windows: Windows) -> float:
    """Mean squared error of the training's kind over every eighth window."""
    model.eval()
    total, count = 0.0, 0
    for part in torch.arange(0, len(windows), 8).split(SCORED):
        past, future = windows.batch(part)
        total += float((model(past, future) - future).square().sum())
        count += future.numel()
    return total / count
