"""Ordered, bounded parallelism over matrices: one thread each, and one LAPACK thread in each of those."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

import torch

from rankscope.engine.pool import available_cores
from rankscope.errors import check_count

Item = TypeVar("Item")
Result = TypeVar("Result")


_LOCK = threading.Lock()
_depths: Counter[int] = Counter()
"""Blocks of `single_lapack_thread` that are running, by the thread that entered them."""
_outside = 1
"""Torch's number of threads outside of all these blocks."""


@contextlib.contextmanager
def single_lapack_thread() -> Iterator[None]:
    """One thread inside each torch operation while the block runs; the number outside of it is restored after it.

    Small dense decompositions gain little from a second thread, so cores are better spent on a second matrix.
    """
    global _outside
    thread = threading.get_ident()  # an iterator that is in the block may be closed by another one
    with _LOCK:
        _outside = _outside if _depths else torch.get_num_threads()
        _depths[thread] += 1
    torch.set_num_threads(1)
    try:
        yield
    finally:
        with _LOCK:
            _depths[thread] -= 1
            if not _depths[thread]:
                del _depths[thread]
                torch.set_num_threads(_outside)


def parallel_map(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int | None = None
) -> Iterator[Result]:
    """``function`` of every item, in order; at most one item more than there are workers waits or runs at any time.

    ``items`` is advanced in the calling thread, which has its own number of torch threads again while it holds a
    result. torch releases Python's lock inside its operations, so threads are enough. An error in a worker is raised
    where its result would have been yielded.

    Raises:
        OptionError: ``workers`` below 1.
    """
    count = available_cores() if workers is None else check_count("workers", workers)
    return _parallel_map(function, items, count)


def _parallel_map(function: Callable[[Item], Result], items: Iterable[Item], count: int) -> Iterator[Result]:
    # OpenMP counts threads per calling thread, hence the initializer beside the process-wide setting
    pool = ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,))
    source, running = iter(items), deque[Future[Result]]()
    try:
        while True:
            with single_lapack_thread():
                running.extend(pool.submit(function, item) for item in islice(source, count + 1 - len(running)))
                if not running:
                    return
                result = running.popleft().result()
            yield result
    finally:
        with single_lapack_thread():  # a worker that begins late sets the number of new threads, too
            pool.shutdown(cancel_futures=True)
