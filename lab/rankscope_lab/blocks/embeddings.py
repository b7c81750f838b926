"""Token embeddings, patches and positional encodings."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from rankscope.errors import DataError, OptionError


class TokenEmbedding(nn.Module):
    """Token embedding scaled by √d_model.

    Rows are drawn from N(0, 1/d_model), so that tokens begin with components of variance 1, about what sinusoidal
    positions have (1/2). Source: Vaswani et al. 2017, section 3.4.
    """

    def __init__(self, vocabulary: int, d_model: int) -> None:
        super().__init__()
        self.scale = d_model**0.5
        self.table = nn.Embedding(vocabulary, d_model)
        nn.init.normal_(self.table.weight, std=d_model**-0.5)

    def forward(self, ids: Int[Tensor, "batch tokens"]) -> Float[Tensor, "batch tokens d_model"]:
        """Embed token ids."""
        return self.table(ids) * self.scale


def patch_count(length: int, patch: int, stride: int) -> int:
    """Return the number of complete patches, ⌊(length − patch) / stride⌋ + 1; trailing values are dropped.

    Raises:
        DataError: the series is shorter than a patch.

    >>> patch_count(512, 16, 8)
    63
    """
    if length < patch:
        raise DataError(f"a series of {length} values is shorter than a patch of {patch}.")
    return (length - patch) // stride + 1


def patches(
    x: Float[Tensor, "batch time variables"], patch: int, stride: int
) -> Float[Tensor, "batch_variables patches patch"]:
    """Split each variable into patches, batch-major then variable; patch i starts at step i · stride."""
    patch_count(x.shape[1], patch, stride)
    return x.transpose(1, 2).unfold(-1, patch, stride).flatten(0, 1)


def sinusoid(length: int, d_model: int) -> Float[Tensor, "length d_model"]:
    """Return sinusoidal positions: sin(t·w_i) in dimension 2i, cos(t·w_i) in 2i+1, w_i = 10000^(−2i/d_model).

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
    """Check that a series is not longer than a positional table.

    Raises:
        OptionError: the series is longer.
    """
    if used > length:
        raise OptionError(
            f"{used} positions, but there are only {length}: make the table longer or the series shorter."
        )


class SinusoidalPositions(nn.Module):
    """Additive sinusoidal positions without parameters, scaling or dropout."""

    table: Tensor

    def __init__(self, length: int, d_model: int) -> None:
        super().__init__()
        self.register_buffer("table", sinusoid(length, d_model), persistent=False)

    def forward(self, x: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        """Return x_t + p(t)."""
        check_length(x.shape[-2], len(self.table))
        return x + self.table[: x.shape[-2]]


class LearnedPositions(nn.Module):
    """Additive learned positions, initialised from N(0, 1)."""

    def __init__(self, length: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(length, d_model))

    def forward(self, x: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        """Return x_t + weight_t."""
        check_length(x.shape[-2], len(self.weight))
        return x + self.weight[: x.shape[-2]]


class MultiplicativePositions(nn.Module):
    """Multiplicative learned positions, initialised from N(0, 1), plus a constant ``offset``.

    Source: Sparse-Layered Transformers. At offset 0 about half of the signs flip initially; offset 1 with zero weights
    is the identity.
    """

    def __init__(self, length: int, d_model: int, offset: float = 0.0) -> None:
        super().__init__()
        self.offset = offset
        self.weight = nn.Parameter(torch.randn(length, d_model))

    def forward(self, x: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        """Return x_t ⊙ (weight_t + offset)."""
        check_length(x.shape[-2], len(self.weight))
        return x * (self.weight[: x.shape[-2]] + self.offset)
