"""Masks that keep attention away from padding."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from rankscope.errors import DataError


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
