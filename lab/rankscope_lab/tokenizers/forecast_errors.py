"""Errors of forecasts over the windows of a table, and the seasonal naive beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.errors import OptionError
from rankscope_lab.data.windows import Windows

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


def check_season(season: int, lookback: int) -> None:
    """Refuse a look-back too short for the seasonal naive, which every forecast stands beside.

    Raises:
        OptionError: the season is longer, or the table has none.
    """
    if season < 1:
        raise OptionError("the table's step does not divide a day: there is no season of 24 hours to stand beside.")
    if season > lookback:
        raise OptionError(f"a season of {season} steps does not fit a look-back of {lookback}: lengthen it.")


def seasonal_naive(
    past: Float[Tensor, "batch lookback variables"], horizon: int, season: int
) -> Float[Tensor, "batch horizon variables"]:
    """Each step repeats the value of one season earlier.

    >>> seasonal_naive(torch.tensor([[[1.0], [2.0], [3.0]]]), 3, 2)[0, :, 0].tolist()
    [2.0, 3.0, 2.0]
    """
    check_season(season, past.shape[1])
    return past[:, -season:].repeat(1, -(-horizon // season), 1)[:, :horizon]


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
