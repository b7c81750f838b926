"""Ordered, bounded parallelism over matrices: one thread each, and one LAPACK thread in each of those."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

from rankscope.engine.pool import available_cores
from rankscope.errors import check_count

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Within:
    """Blocks of `single_lapack_thread` that run in all threads, and torch's number of threads outside of them."""

    all = 0
    before = 1


_within, _mine, _LOCK = _Within(), threading.local(), threading.Lock()


@contextlib.contextmanager
def single_lapack_thread() -> Iterator[None]:
    """One thread inside each torch operation while the block runs; the number outside of it is restored after it.

    Small dense decompositions gain little from a second thread, so cores are better spent on a second matrix.
    """
    with _LOCK:
        if not _within.all:
            _within.before = torch.get_num_threads()
        _within.all += 1
    mine = _mine.__dict__  # of the thread that enters: an iterator may be closed in another one
    mine["depth"] = mine.get("depth", 0) + 1
    torch.set_num_threads(1)
    try:
        yield
    finally:
        with _LOCK:
            _within.all -= 1
            mine["depth"] -= 1
            if not mine["depth"]:
                torch.set_num_threads(_within.before)


def parallel_map(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int | None = None
) -> Iterator[Result]:
    """``function`` of every item, in order; at most one item per worker waits or runs at any time.

    ``items`` is advanced in the calling thread. torch releases Python's lock inside its operations, so
    threads are enough. An error in a worker is raised where its result would have been yielded.

    Raises:
        OptionError: ``workers`` below 1.
    """
    count = available_cores() if workers is None else check_count("workers", workers)
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
