"""Tokens of a series: learned rows, overlapping patches, and masks that keep attention away from padding."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rankscope.errors import DataError


class TokenEmbedding(nn.Module):
    """√d_model times a learned row per token.

    Rows are drawn from N(0, 1/d_model), so that tokens begin with components of variance 1, about what sinusoidal
    positions have (1/2). Source: Vaswani et al. 2017, section 3.4.
    """

    def __init__(self, vocabulary: int, d_model: int) -> None:
        super().__init__()
        self.scale = d_model**0.5
        self.table = nn.Embedding(vocabulary, d_model)
        nn.init.normal_(self.table.weight, std=d_model**-0.5)

    def forward(self, ids: Int[Tensor, "batch tokens"]) -> Float[Tensor, "batch tokens d_model"]:
        """Look tokens up."""
        return self.table(ids) * self.scale


def patch_count(length: int, patch: int, stride: int) -> int:
    """Whole patches in a series: ⌊(length − patch) / stride⌋ + 1; values after the last whole patch are left out.

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
    """Patches of every variable on its own, batch-major then variable; patch i begins at step i · stride."""
    patch_count(x.shape[1], patch, stride)
    return x.transpose(1, 2).unfold(-1, patch, stride).flatten(0, 1)


def key_padding_mask(lengths: Int[Tensor, " batch"], tokens: int) -> Bool[Tensor, "batch 1 1 tokens"]:
    """True where a key is no padding, for sequences that are padded at their end; broadcasts over heads and queries.

    Zeros alone would not do: a padded token has a key, takes its share of the softmax, and adds its value's bias.

    Args:
        lengths: real tokens of each sequence.
        tokens: length with padding.

    Raises:
        DataError: a sequence without tokens (no key would be left), or longer than ``tokens``.

    >>> key_padding_mask(torch.tensor([1, 3]), 3)[:, 0, 0].tolist()
    [[True, False, False], [True, True, True]]
    """
    low, high = int(lengths.min()), int(lengths.max())
    if low < 1 or high > tokens:
        raise DataError(f"lengths must lie in 1…{tokens}, got {low}…{high}: drop empty sequences, cut long ones.")
    return (torch.arange(tokens, device=lengths.device) < lengths[:, None])[:, None, None, :]
