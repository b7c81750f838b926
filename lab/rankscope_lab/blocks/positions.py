"""Positions: fixed sine and cosine (added), learned (added), learned (multiplied)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.errors import OptionError


def sinusoid(length: int, d_model: int) -> Float[Tensor, "length d_model"]:
    """Fixed positions: dimension 2i holds sin(t·w_i), dimension 2i+1 cos(t·w_i), w_i = 10000^(−2i/d_model).

    Computed in float64 and rounded once to float32. Source: Vaswani et al. 2017, section 3.5.

    Raises:
        OptionError: ``d_model`` is odd: sines and cosines come in pairs.
    """
    if d_model % 2:
        raise OptionError(f"sinusoidal positions need an even d_model, got {d_model}.")
    t = torch.arange(length, dtype=torch.float64)[:, None]
    w = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    return torch.stack(((t * w).sin(), (t * w).cos()), dim=-1).flatten(1).float()


def check_length(used: int, length: int) -> None:
    """Refuse a series that is longer than a table of positions.

    Raises:
        OptionError: it is.
    """
    if used > length:
        raise OptionError(
            f"{used} positions, but there are only {length}: make the table longer or the series shorter."
        )


class SinusoidalPositions(nn.Module):
    """Adds `sinusoid` to tokens; no parameters, no scaling, no dropout."""

    table: Tensor

    def __init__(self, length: int, d_model: int) -> None:
        super().__init__()
        self.register_buffer("table", sinusoid(length, d_model), persistent=False)

    def forward(self, x: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        """Return x_t + p(t)."""
        check_length(x.shape[-2], len(self.table))
        return x + self.table[: x.shape[-2]]


class LearnedPositions(nn.Module):
    """Adds a learned vector per position, drawn from N(0, ``std``)."""

    def __init__(self, length: int, d_model: int, std: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(length, d_model) * std)

    def forward(self, x: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        """Return x_t + weight_t."""
        check_length(x.shape[-2], len(self.weight))
        return x + self.weight[: x.shape[-2]]


class MultiplicativePositions(nn.Module):
    """Multiplies tokens by a learned vector per position, drawn from N(0, 1), plus a constant ``offset``.

    Source: Sparse-Layered Transformers. At offset 0 about half of the signs flip at the start; at offset 1 and weight 0
    tokens pass as they are.
    """

    def __init__(self, length: int, d_model: int, offset: float = 0.0) -> None:
        super().__init__()
        self.offset = offset
        self.weight = nn.Parameter(torch.randn(length, d_model))

    def forward(self, x: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        """Return x_t ⊙ (weight_t + offset)."""
        check_length(x.shape[-2], len(self.weight))
        return x * (self.weight[: x.shape[-2]] + self.offset)
