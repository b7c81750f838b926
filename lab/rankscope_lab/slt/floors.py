"""What a forecaster has to beat: two linear maps, and yesterday repeated."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.errors import DataError


def moving_average(x: Float[Tensor, "series time"], kernel: int) -> Float[Tensor, "series time"]:
    """Mean over ``kernel`` (odd) steps around each; the ends are repeated where there are none.

    Source: Zeng et al. 2023, Are Transformers Effective for Time Series Forecasting?
    """
    half = kernel // 2
    return F.avg_pool1d(F.pad(x[:, None], (half, half), mode="replicate"), kernel, stride=1)[:, 0]


class DLinear(nn.Module):
    """One linear map of the moving average, one of what is left; shared by variables, as published."""

    def __init__(self, lookback: int, horizon: int, kernel: int = 25) -> None:
        super().__init__()
        self.kernel = kernel
        self.trend = nn.Linear(lookback, horizon)
        self.rest = nn.Linear(lookback, horizon)

    def forward(self, x: Float[Tensor, "batch lookback variables"]) -> Float[Tensor, "batch horizon variables"]:
        """Forecast."""
        series = x.transpose(1, 2).flatten(0, 1)
        trend = moving_average(series, self.kernel)
        both = self.trend(trend) + self.rest(series - trend)
        return both.unflatten(0, (x.shape[0], x.shape[2])).transpose(1, 2)


class SeasonalNaive(nn.Module):
    """The last season, over and over; nothing is learned."""

    def __init__(self, lookback: int, horizon: int, season: int) -> None:
        super().__init__()
        if season < 1:
            raise DataError("the table's step does not divide a day, so there is no season of 24 hours to repeat.")
        if season > lookback:
            raise DataError(f"a season of {season} steps does not fit into a look-back of {lookback}: lengthen it.")
        self.horizon, self.season = horizon, season

    def forward(self, x: Float[Tensor, "batch lookback variables"]) -> Float[Tensor, "batch horizon variables"]:
        """Forecast."""
        times = -(-self.horizon // self.season)
        return x[:, -self.season :].repeat(1, times, 1)[:, : self.horizon]
