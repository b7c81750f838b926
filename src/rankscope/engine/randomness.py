"""Torch's random state: seeded for what is computed, the caller's afterwards."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

import torch
from torch import Tensor

Item = TypeVar("Item")
TOGETHER = 32
"""Items that `drawn` takes at a time."""
_DRAWING = threading.RLock()


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch on all devices for the block; the random state from before comes back after it."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=list(devices)):
        torch.manual_seed(seed)
        yield


def drawn(items: Iterable[Item], seed: int) -> Iterator[Item]:
    """Yield items that draw random numbers as they are advanced: numbers of their own, which begin at a seed.

    The caller's random state is as it was whenever an item is yielded. Threads take turns, since torch has one state
    for all of them.
    """
    iterator, state = iter(items), None
    while True:
        with _DRAWING, seeded(seed):
            if state is not None:
                _restore(*state)
            some = list(islice(iterator, TOGETHER))
            state = _state()
        if not some:
            return
        yield from some


def _state() -> tuple[Tensor, list[Tensor]]:
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []


def _restore(cpu: Tensor, cuda: list[Tensor]) -> None:
    torch.set_rng_state(cpu)
    if cuda:
        torch.cuda.set_rng_state_all(cuda)
