"""Series of unequal length side by side: how long each is, and which go together."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Int
from torch import Tensor

TOKENS = 2048
"""Tokens that go through an encoder at a time on a CPU: enough to fill the products, few enough for the caches."""
GPU_TOKENS = 2**17
"""The same on a GPU, which takes many more to fill."""
WASTE = 0.9
"""Series go together as long as the shortest has this share of the longest's tokens."""


def lengths_of(kept: Bool[Tensor, "series tokens"]) -> Int[Tensor, " series"]:
    """Tokens from the first that is kept to the end, at least one.

    >>> lengths_of(torch.tensor([[True, True], [False, True], [False, False]])).tolist()
    [2, 1, 1]
    """
    first = kept.to(torch.uint8).argmax(dim=1)
    return kept.shape[1] - torch.where(kept.any(dim=1), first, kept.shape[1] - 1)


def chunks(
    order: Int[Tensor, " series"], lengths: Int[Tensor, " series"], most: int | None = None
) -> Iterator[Int[Tensor, " some"]]:
    """Cut an order of falling length into runs that are encoded together.

    Args:
        order: places of the series, the longest first.
        lengths: tokens of every series, by place.
        most: series at a time; by default as many as make `TOKENS` tokens (on a GPU `GPU_TOKENS`).

    Yields:
        Places of the series of a run, in the given order.

    >>> [one.tolist() for one in chunks(torch.tensor([2, 0, 1]), torch.tensor([99, 10, 100]))]
    [[2, 0], [1]]
    """
    sizes = lengths[order].tolist()
    tokens = GPU_TOKENS if order.is_cuda else TOKENS
    begin = 0
    for end in range(1, len(sizes) + 1):
        longest = sizes[begin]
        full = end - begin >= (most or max(1, tokens // longest))
        if end == len(sizes) or full or sizes[end] < WASTE * longest:
            yield order[begin:end]
            begin = end
