"""Random states: seeded for what is computed, the caller's afterwards."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

Item = TypeVar("Item")
TOGETHER = 32
"""Items that `seeded_items` makes at a time."""
_LOCK = threading.RLock()


@contextlib.contextmanager
def random_states_kept() -> Iterator[None]:
    """Restore the random states of Python, NumPy and torch after the block."""
    python, numpy, (cpu, cuda) = random.getstate(), np.random.get_state(), _state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        _restore(cpu, cuda)
        if not cuda:  # the seed waits for GPUs that are used later
            torch.cuda.manual_seed_all(torch.initial_seed())


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch on all devices for the block; the random state from before comes back after it.

    Threads take turns, since torch has one state for all of them.
    """
    with _LOCK:
        on_gpu, before = torch.cuda.is_initialized(), torch.initial_seed()
        with torch.random.fork_rng(devices=list(range(torch.cuda.device_count())) if on_gpu else []):
            torch.manual_seed(seed)
            try:
                yield
            finally:
                if not on_gpu:  # the seed waits for GPUs that are used later
                    torch.cuda.manual_seed_all(before)


def seeded_items(make: Callable[[], Iterable[Item]], seed: int) -> Iterator[Item]:
    """Yield items that draw random numbers while they are made: numbers of their own, which begin at a seed.

    The caller's random state is as it was whenever an item is yielded.

    Args:
        make: of an iterable, which is advanced by `TOGETHER` items at a time.
        seed: of its first number.
    """
    iterator: Iterator[Item] | None = None
    state: tuple[Tensor, list[Tensor]] | None = None
    while True:
        with seeded(seed):
            if state is not None:
                _restore(*state)
            iterator = iter(make()) if iterator is None else iterator
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
