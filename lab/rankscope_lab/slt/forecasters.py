"""Forecasters: patch transformers with attention or projection blocks (SLT, PatchTST-like), N-BEATS-like, baselines."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.errors import OptionError, unknown_choice
from rankscope_lab.blocks import (
    AttentionBlock,
    LearnedPositions,
    MultiplicativePositions,
    ProjectionBlock,
    patch_count,
    patches,
)
from rankscope_lab.data.windows import check_season, seasonal_naive

EPSILON = 1e-5
"""Added to the variance."""


class InstanceNorm(nn.Module):
    """Reversible instance normalisation around a forecaster."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Float[Tensor, "batch lookback variables"]) -> Float[Tensor, "batch horizon variables"]:
        """Forecast."""
        scaled, mean, std = standardised(x)
        return self.inner(scaled) * std + mean


def standardised(
    x: Float[Tensor, "batch time variables"],
) -> tuple[
    Float[Tensor, "batch time variables"], Float[Tensor, "batch 1 variables"], Float[Tensor, "batch 1 variables"]
]:
    """Standardise every variable of every window; return the mean and scale, too.

    No gradient flows through mean and standard deviation.
    """
    mean = x.mean(1, keepdim=True).detach()
    std = (x.var(1, keepdim=True, unbiased=False) + EPSILON).sqrt().detach()
    return (x - mean) / std, mean, std


class NBeatsBlock(nn.Module):
    """N-BEATS block: four layers, then linear backcast and forecast heads."""

    def __init__(self, lookback: int, width: int, layers: int) -> None:
        super().__init__()
        inputs = [lookback, *[width] * (layers - 1)]
        self.layers = nn.Sequential(*[part for size in inputs for part in (nn.Linear(size, width), nn.ReLU())])
        self.backcast = nn.Linear(width, lookback)
        self.forecast = nn.Linear(width, lookback)

    def forward(
        self, x: Float[Tensor, "series lookback"]
    ) -> tuple[Float[Tensor, "series lookback"], Float[Tensor, "series lookback"]]:
        """Return backcast and forecast."""
        inner = self.layers(x)
        return self.backcast(inner), self.forecast(inner)


class NBeats(nn.Module):
    """N-BEATS: residual stack of blocks whose forecasts are summed.

    As in the benchmark, a forecast has as many values as the past, of which the first ``horizon`` count; weights are
    shared by variables. Unlike N-BEATS (Oreshkin et al. 2020), it has no basis and one stack.
    """

    def __init__(self, lookback: int, horizon: int, width: int = 128, blocks: int = 3, layers: int = 4) -> None:
        super().__init__()
        if horizon > lookback:
            raise OptionError(f"N-BEATS forecasts at most its look-back, {lookback} steps, got horizon {horizon}.")
        self.horizon = horizon
        self.blocks = nn.ModuleList(NBeatsBlock(lookback, width, layers) for _ in range(blocks))

    def forward(self, x: Float[Tensor, "batch lookback variables"]) -> Float[Tensor, "batch horizon variables"]:
        """Forecast."""
        left = x.transpose(1, 2).flatten(0, 1)
        total = left.new_zeros(len(left), self.horizon)
        for block in self.blocks:
            backcast, forecast = block(left)
            left = left - backcast
            total = total + forecast[:, : self.horizon]
        return total.unflatten(0, (x.shape[0], x.shape[2])).transpose(1, 2)


ATTENTION, PROJECTION = "attention", "projection"
BLOCKS = (ATTENTION, PROJECTION)
ADDITIVE, MULTIPLICATIVE, NO_POSITIONS = "additive", "multiplicative", "none"
POSITIONS = (ADDITIVE, MULTIPLICATIVE, NO_POSITIONS)

LOOKBACK, HORIZON = 512, 96


@dataclass(frozen=True)
class ForecasterShape:
    """Settings of a `PatchForecaster`; the defaults are those of SLT.

    Attributes:
        blocks: kind of every block, the first one next to the patches.
        positions: ``additive`` and ``multiplicative`` are learned and drawn from N(0, 1).
        offset: added to multiplicative positions.
        lookback: steps read.
        horizon: steps forecast.
        patch: steps of a patch.
        stride: steps from one patch to the next.
        d_model: width of tokens.
        heads: of attention.
        d_ff: inner width of the feed-forward layers.
        dropout: of attention weights and of both feed-forward outputs.
    """

    blocks: tuple[str, ...] = (PROJECTION, PROJECTION, ATTENTION)
    positions: str = MULTIPLICATIVE
    offset: float = 0.0
    lookback: int = LOOKBACK
    horizon: int = HORIZON
    patch: int = 16
    stride: int = 8
    d_model: int = 128
    heads: int = 8
    d_ff: int = 256
    dropout: float = 0.15

    def __post_init__(self) -> None:
        """Refuse unknown kinds.

        Raises:
            OptionError: a block or positions of no known kind, or an offset where nothing is multiplied.
        """
        for block in self.blocks:
            if block not in BLOCKS:
                raise OptionError(unknown_choice("block", block, BLOCKS))
        if self.positions not in POSITIONS:
            raise OptionError(unknown_choice("positions", self.positions, POSITIONS))
        if self.offset and self.positions != MULTIPLICATIVE:
            raise OptionError(f"offset {self.offset} belongs to multiplicative positions, these are {self.positions}.")

    @property
    def tokens(self) -> int:
        """Patches of one series: 63 by default; the ends are not padded."""
        return patch_count(self.lookback, self.patch, self.stride)


class PatchForecaster(nn.Module):
    """Patches → linear embedding → positions → post-norm blocks → a linear map of all patches to the horizon.

    Every variable is a series of its own; all of them share the weights and none sees another.
    """

    def __init__(self, shape: ForecasterShape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Linear(shape.patch, shape.d_model)
        self.positions = _positions(shape)
        self.blocks = nn.ModuleList(_block(kind, shape) for kind in shape.blocks)
        self.head = nn.Linear(shape.tokens * shape.d_model, shape.horizon)

    def forward(self, x: Float[Tensor, "batch lookback variables"]) -> Float[Tensor, "batch horizon variables"]:
        """Forecast."""
        last = self.hidden(x)[-1]
        return self.head(last.flatten(1)).unflatten(0, (x.shape[0], x.shape[2])).transpose(1, 2)

    def hidden(
        self, x: Float[Tensor, "batch lookback variables"]
    ) -> list[Float[Tensor, "batch_variables tokens d_model"]]:
        """Return the tokens after embedding and positions, then after every block."""
        if x.shape[1] != self.shape.lookback:
            raise OptionError(f"the model reads {self.shape.lookback} steps, got {x.shape[1]}.")
        stream = [self.positions(self.embedding(patches(x, self.shape.patch, self.shape.stride)))]
        for block in self.blocks:
            stream.append(block(stream[-1]))
        return stream


def _positions(shape: ForecasterShape) -> nn.Module:
    if shape.positions == ADDITIVE:
        return LearnedPositions(shape.tokens, shape.d_model)
    if shape.positions == MULTIPLICATIVE:
        return MultiplicativePositions(shape.tokens, shape.d_model, shape.offset)
    return nn.Identity()


def _block(kind: str, shape: ForecasterShape) -> nn.Module:
    if kind == PROJECTION:
        return ProjectionBlock(shape.d_model, shape.d_ff, shape.dropout)
    return AttentionBlock(shape.d_model, shape.heads, shape.d_ff, shape.dropout, norm="post", drop_output=False)


def moving_average(x: Float[Tensor, "series time"], kernel: int) -> Float[Tensor, "series time"]:
    """Compute a centred moving average over ``kernel`` (odd) steps, with edge padding.

    Source: Zeng et al. 2023, Are Transformers Effective for Time Series Forecasting?
    """
    half = kernel // 2
    return F.avg_pool1d(F.pad(x[:, None], (half, half), mode="replicate"), kernel, stride=1)[:, 0]


class DLinear(nn.Module):
    """DLinear: linear maps of the moving average and of the residual, shared by variables, as published."""

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
    """Seasonal naive forecast."""

    def __init__(self, lookback: int, horizon: int, season: int) -> None:
        super().__init__()
        check_season(season, lookback)
        self.horizon, self.season = horizon, season

    def forward(self, x: Float[Tensor, "batch lookback variables"]) -> Float[Tensor, "batch horizon variables"]:
        """Forecast."""
        return seasonal_naive(x, self.horizon, self.season)
