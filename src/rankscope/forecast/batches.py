"""Batches of series: which of unequal length go together, and how many fit into the memory that is free."""

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
"""Tokens that go through an encoder at a time on a CPU: enough to fill the products, few enough for the caches."""
GPU_TOKENS = 2**17
"""The same on a GPU, which takes many more to fill."""
WASTE = 0.9
"""Series go together as long as the shortest has this share of the longest's tokens."""
SHARE = 0.6
"""Share of the free memory that a batch may take by its estimate: temporaries and other programs need some, too."""


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


class MemoryRunsOutError(RankscopeError):
    """Not even one series fits."""


def free_bytes(device: torch.device) -> int | None:
    """Bytes that can still be taken on a device; None where the system does not say."""
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
    """Series side by side, at least one.

    Args:
        each: bytes that a series takes.
        most: more than this many gain nothing.
        device: where.
    """
    free = free_bytes(device)
    return max(1, most if free is None else min(most, int(SHARE * free) // max(1, each)))


def in_batches(
    order: Int[Tensor, " series"],
    size: int,
    work: Callable[[Int[Tensor, " some"]], None],
    clear: Callable[[], None] = lambda: None,
) -> int:
    """Do the work of some series after the other; where memory runs out, of half as many from there on.

    Args:
        order: places of the series.
        size: series at a time.
        work: is given the places of some; it may be given them again after it failed.
        clear: drops what can be made again.

    Returns:
        Series at a time at the end.

    Raises:
        MemoryRunsOutError: one series alone does not fit.
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
        # outside the except block, so that no frame of the failure keeps its tensors
        clear()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if not half:
            raise MemoryRunsOutError(
                "memory ran out with one series: ask for fewer samples, a shorter context, or a smaller number format."
            )
        warnings.warn(f"memory ran out with {len(some)} series side by side: going on with {half}.", stacklevel=2)
        size = half
    return size


def ran_out(error: BaseException) -> bool:
    """True if an error says that memory was not enough, on a GPU or of the system."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return "not enough memory" in str(error) or "can't allocate memory" in str(error)
