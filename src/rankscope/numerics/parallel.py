"""Ordered, bounded parallelism over matrices: one thread each, and one LAPACK thread in each of those."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

from rankscope.engine.pool import available_cores
from rankscope.errors import OptionError

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextlib.contextmanager
def single_lapack_thread() -> Iterator[None]:
    """One thread inside each torch operation while the block runs; the previous number is restored after it.

    Small dense decompositions gain little from a second thread, so cores are better spent on a second matrix.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def parallel_map(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int | None = None
) -> Iterator[Result]:
    """``function`` of every item, in order; at most one item per worker waits or runs at any time.

    ``items`` is advanced in the calling thread. torch releases Python's lock inside its operations, so
    threads are enough. An error in a worker is raised where its result would have been yielded.

    Raises:
        OptionError: ``workers`` below 1.
    """
    count = available_cores() if workers is None else workers
    if count < 1:
        raise OptionError(f"workers must be at least 1, not {count}.")
    return _parallel_map(function, items, count)


def _parallel_map(function: Callable[[Item], Result], items: Iterable[Item], count: int) -> Iterator[Result]:
    # OpenMP counts threads per calling thread, hence the initializer beside the process-wide setting
    with (
        single_lapack_thread(),
        ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        running: deque[Future[Result]] = deque()
        try:
            for item in items:
                running.append(pool.submit(function, item))
                if len(running) > count:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()
