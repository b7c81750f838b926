"""Batching of series by length and available memory."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from rankscope.errors import RankscopeError

TOKENS = 2048
"""Tokens per encoder pass on a CPU: large enough for efficient matmuls, small enough for the caches."""
GPU_TOKENS = 2**17
"""Tokens per encoder pass on a GPU."""
WASTE = 0.9
"""Minimum length ratio of the shortest to the longest series of a batch."""
SHARE = 0.6
"""Fraction of the free memory that a batch may use by its estimate; the rest is for temporaries and other processes."""


def lengths_of(kept: Bool[Tensor, "series tokens"]) -> Int[Tensor, " series"]:
    """Return the number of tokens from the first kept one to the end, at least one.

    >>> lengths_of(torch.tensor([[True, True], [False, True], [False, False]])).tolist()
    [2, 1, 1]
    """
    first = kept.to(torch.uint8).argmax(dim=1)
    return kept.shape[1] - torch.where(kept.any(dim=1), first, kept.shape[1] - 1)


def chunks(
    order: Int[Tensor, " series"], lengths: Int[Tensor, " series"], most: int | None = None
) -> Iterator[Int[Tensor, " some"]]:
    """Split series, sorted by decreasing length, into groups that are encoded together.

    Args:
        order: indices of the series, longest first.
        lengths: tokens per series.
        most: maximum series per group (default: as many as make `TOKENS` tokens; `GPU_TOKENS` on a GPU).

    Yields:
        Indices of the series of a group, in the given order.

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


class MemoryRunsOutError(RankscopeError):
    """Not enough memory for a single series."""


def free_bytes(device: torch.device) -> int | None:
    """Return the free memory of a device in bytes; None if unknown."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + int(unused)
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return int(os.sysconf("SC_AVPHYS_PAGES")) * int(os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, AttributeError):
        return None


def series_that_fit(each: int, most: int, device: torch.device) -> int:
    """Return the largest batch size that fits in memory, at least one.

    Args:
        each: bytes per series.
        most: maximum batch size.
        device: device of the batch.
    """
    free = free_bytes(device)
    return max(1, most if free is None else min(most, int(SHARE * free) // max(1, each)))


def in_batches(
    order: Int[Tensor, " series"],
    size: int,
    work: Callable[[Int[Tensor, " some"]], None],
    clear: Callable[[], None] = lambda: None,
) -> int:
    """Process series in batches; halve the batch size when memory runs out.

    Args:
        order: indices of the series.
        size: initial batch size.
        work: function of a batch's indices; may be called again with them after a failure.
        clear: frees caches.

    Returns:
        Final batch size.

    Raises:
        MemoryRunsOutError: a single series does not fit.
    """
    begin = 0
    while begin < len(order):
        some = order[begin : begin + size]
        try:
            work(some)
        except (RuntimeError, MemoryError) as error:
            if not ran_out(error):
                raise
            half = len(some) // 2
        else:
            begin += len(some)
            continue
        # outside the except block, so that the traceback's frames do not keep tensors alive
        clear()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if not half:
            raise MemoryRunsOutError(
                "out of memory with a single series; use fewer samples, a shorter context or a smaller dtype."
            )
        warnings.warn(f"out of memory with {len(some)} series per batch; continuing with {half}.", stacklevel=2)
        size = half
    return size


def ran_out(error: BaseException) -> bool:
    """Return whether an error means out of memory, on a GPU or on the host."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return "not enough memory" in str(error) or "can't allocate memory" in str(error)
