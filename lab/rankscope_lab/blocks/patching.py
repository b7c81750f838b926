"""Cutting series into overlapping patches."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from rankscope.errors import DataError


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
