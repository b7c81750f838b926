"""The N-BEATS-like baseline of the SLT benchmark."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from rankscope.errors import OptionError


class NBeatsBlock(nn.Module):
    """Four layers, then one linear map for what they explain of the past and one for the future."""

    def __init__(self, lookback: int, width: int, layers: int) -> None:
        super().__init__()
        inputs = [lookback, *[width] * (layers - 1)]
        self.layers = nn.Sequential(*[part for size in inputs for part in (nn.Linear(size, width), nn.ReLU())])
        self.backcast = nn.Linear(width, lookback)
        self.forecast = nn.Linear(width, lookback)

    def forward(
        self, x: Float[Tensor, "series lookback"]
    ) -> tuple[Float[Tensor, "series lookback"], Float[Tensor, "series lookback"]]:
        """Backcast and forecast."""
        inner = self.layers(x)
        return self.backcast(inner), self.forecast(inner)


class NBeats(nn.Module):
    """Blocks that each take what the ones before left over of a variable's past; their forecasts add up.

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
