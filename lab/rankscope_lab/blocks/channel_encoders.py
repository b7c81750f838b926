"""Multichannel encoders: map C values per time step to one token of width d_model, including positions.

Source: Lehtinen 2026, section 2.2. Parameters and initial draws are those of the published runs: ``linear`` is not
``nn.Linear(C, d_model)`` there, it holds a bias per channel (only their sum matters) and weights of variance 1/d_model.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.errors import OptionError
from rankscope_lab.blocks.embeddings import check_length, sinusoid

Channels = Float[Tensor, "batch time channels"]
Tokens = Float[Tensor, "batch time d_model"]

PROJECTED_SCALE = 0.56
"""Factor of p(t) in the control ``linear-scaled``: of positions that leave a trained projection of linear-ppe there is
about a third of ‖P‖_F² (0.56² = 0.31; 0.34 before training)."""


class ChannelEncoder(nn.Module):
    """Base class of the encoders, with the positional table."""

    positions: Tensor

    def __init__(self, d_model: int, length: int) -> None:
        super().__init__()
        self.register_buffer("positions", sinusoid(length, d_model), persistent=False)

    def position(self, length: int) -> Float[Tensor, "time d_model"]:
        """Return the position vectors of the first ``length`` steps.

        Raises:
            OptionError: the table is shorter.
        """
        check_length(length, len(self.positions))
        return self.positions[:length]

    def penalty(self) -> Float[Tensor, ""] | None:
        """Return an additional loss term, or None."""
        return None


class SumEncoder(ChannelEncoder):
    """Σ_k (w v_k + e_k) + p(t): a single direction for all channels, which preserves only their sum."""

    def __init__(self, channels: int, d_model: int, length: int) -> None:
        super().__init__(d_model, length)
        self.weight = nn.Parameter(torch.empty(d_model).uniform_(-1, 1))
        self.channel = nn.Parameter(torch.randn(channels, d_model))

    def forward(self, x: Channels) -> Tokens:
        """Encode."""
        return x.sum(-1, keepdim=True) * self.weight + self.channel.sum(0) + self.position(x.shape[1])


class LinearEncoder(ChannelEncoder):
    """Σ_k (W_k v_k + b_k) + p(t)."""

    def __init__(
        self, channels: int, d_model: int, length: int, *, bias: bool = True, position_scale: float = 1.0
    ) -> None:
        """Build it.

        Args:
            channels: C.
            d_model: width of tokens.
            length: longest series.
            bias: whether there are b_k.
            position_scale: factor of p(t), a control.
        """
        super().__init__(d_model, length)
        self.weight = nn.Parameter(torch.randn(channels, d_model) / d_model**0.5)
        self.bias = nn.Parameter(torch.zeros(channels, d_model)) if bias else None
        self.position_scale = position_scale

    def position(self, length: int) -> Float[Tensor, "time d_model"]:
        """p(t), scaled in the control only."""
        return super().position(length) * self.position_scale

    def forward(self, x: Channels) -> Tokens:
        """Encode."""
        tokens = x @ self.weight + self.position(x.shape[1])
        return tokens if self.bias is None else tokens + self.bias.sum(0)


class OrthoEncoder(LinearEncoder):
    """`LinearEncoder` with an orthogonality penalty λ Σ_{i<j} (W_i·W_j)²."""

    STRENGTH = 0.01

    def penalty(self) -> Float[Tensor, ""]:
        """Return the penalty; each pair counts once, rows are not normalised."""
        return self.STRENGTH * (self.weight @ self.weight.T).triu(1).square().sum()


class ProjectedEncoder(LinearEncoder):
    """`LinearEncoder` with projected positions (linear-ppe): Σ_k (W_k v_k + b_k) + W_pos p(t) + b_pos.

    ``orthogonal`` initialises W_pos as a random rotation and b_pos at 0, as a control that preserves norms.
    """

    def __init__(self, channels: int, d_model: int, length: int, *, orthogonal: bool = False) -> None:
        super().__init__(channels, d_model, length)
        self.projection = nn.Linear(d_model, d_model)
        if orthogonal:
            nn.init.orthogonal_(self.projection.weight)
            nn.init.zeros_(self.projection.bias)

    def position(self, length: int) -> Float[Tensor, "time d_model"]:
        """W_pos p(t) + b_pos."""
        return self.projection(super().position(length))


class MlpEncoder(ChannelEncoder):
    """W₂ GELU(W₁ v + b₁) + b₂ + p(t)."""

    def __init__(self, channels: int, d_model: int, length: int) -> None:
        super().__init__(d_model, length)
        self.inner = nn.Linear(channels, d_model)
        self.outer = nn.Linear(d_model, d_model)

    def forward(self, x: Channels) -> Tokens:
        """Encode."""
        return self.outer(F.gelu(self.inner(x))) + self.position(x.shape[1])


class ConcatEncoder(ChannelEncoder):
    """[W_0 v_0 + b_0 ‖ … ‖ W_{C−1} v_{C−1} + b_{C−1}] + p(t): d_model / C dimensions per channel.

    Raises:
        OptionError: C does not divide d_model.
    """

    def __init__(self, channels: int, d_model: int, length: int) -> None:
        super().__init__(d_model, length)
        if d_model % channels:
            raise OptionError(f"concat: {channels} channels do not divide d_model {d_model}: choose a multiple.")
        width = d_model // channels
        self.weight = nn.Parameter(torch.randn(channels, width) / width**0.5)
        self.bias = nn.Parameter(torch.zeros(channels, width))

    def forward(self, x: Channels) -> Tokens:
        """Encode."""
        return (x[..., None] * self.weight + self.bias).flatten(-2) + self.position(x.shape[1])


class ScalarEncoder(ChannelEncoder):
    """w v + b + p(t) for one value per token, as used by ``ci`` and ``cat``.

    With ``channels`` a vector e_k ~ N(0, 1) of the channel is added (``cat``); positions are those of time.
    """

    def __init__(self, d_model: int, length: int, channels: int = 0) -> None:
        super().__init__(d_model, length)
        self.scalar = nn.Linear(1, d_model)
        self.channel = nn.Parameter(torch.randn(channels, d_model)) if channels else None

    def forward(self, x: Channels) -> Float[Tensor, "batch time channels d_model"]:
        """Encode each value separately."""
        tokens = self.scalar(x[..., None]) + self.position(x.shape[1])[:, None]
        return tokens if self.channel is None else tokens + self.channel
