"""Reversible instance normalisation (Kim et al. 2022), as PatchTST's scripts use it: without learned scales."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

EPSILON = 1e-5
"""Added to the variance."""


class InstanceNorm(nn.Module):
    """Take mean and standard deviation out of every variable of every window, forecast, and put them back."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Float[Tensor, "batch lookback variables"]) -> Float[Tensor, "batch horizon variables"]:
        """Forecast."""
        scaled, mean, std = standardised(x)
        return self.inner(scaled) * std + mean

    def hidden(self, x: Float[Tensor, "batch lookback variables"]) -> list[Tensor]:
        """The inner model's stream."""
        streams: list[Tensor] = self.inner.hidden(standardised(x)[0])  # type: ignore[operator]
        return streams


def standardised(
    x: Float[Tensor, "batch time variables"],
) -> tuple[
    Float[Tensor, "batch time variables"], Float[Tensor, "batch 1 variables"], Float[Tensor, "batch 1 variables"]
]:
    """Every window with mean 0 and variance 1 in every variable, and what was taken out of it.

    No gradient flows through mean and standard deviation.
    """
    mean = x.mean(1, keepdim=True).detach()
    std = (x.var(1, keepdim=True, unbiased=False) + EPSILON).sqrt().detach()
    return (x - mean) / std, mean, std
