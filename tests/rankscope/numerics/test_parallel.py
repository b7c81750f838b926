"""Threads inside torch's operations while matrices are measured side by side, and after."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from rankscope.numerics.parallel import parallel_map, single_lapack_thread


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def seen_by_a_new_thread() -> int:
    found: list[int] = []
    one = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    one.start()
    one.join()
    return found[0]


@pytest.mark.usefixtures("two_threads")
def test_blocks_that_overlap_in_threads_restore_the_number_from_before_all_of_them() -> None:
    first_is_in, second_is_in, first_is_out = (threading.Event() for _ in range(3))
    found: list[int] = []

    def first() -> None:
        with single_lapack_thread():
            first_is_in.set()
            second_is_in.wait()
        found.append(torch.get_num_threads())
        first_is_out.set()

    def second() -> None:
        first_is_in.wait()
        with single_lapack_thread():
            second_is_in.set()
            first_is_out.wait()
        found.append(torch.get_num_threads())

    threads = [threading.Thread(target=one) for one in (first, second)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == [2, 2]
    assert seen_by_a_new_thread() == 2


@pytest.mark.usefixtures("two_threads")
def test_nested_blocks_and_iterators_that_end_in_the_order_of_their_begin() -> None:
    with single_lapack_thread():
        with single_lapack_thread():
            pass
        assert torch.get_num_threads() == 1
    first, second = (parallel_map(abs, range(9), 1) for _ in range(2))
    assert next(first) == next(second) == 0
    first.close()
    second.close()
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_the_caller_keeps_its_threads_between_results() -> None:
    results = parallel_map(lambda _: torch.get_num_threads(), range(9), 2)
    assert [(inside, torch.get_num_threads()) for inside in results] == [(1, 2)] * 9


@pytest.mark.usefixtures("two_threads")
def test_an_iterator_may_be_closed_by_another_thread() -> None:
    closed: list[bool] = []

    def close() -> None:
        results.close()
        closed.append(True)

    results = parallel_map(abs, range(9), 1)
    next(results)
    closer = threading.Thread(target=close)
    closer.start()
    closer.join()
    assert closed == [True]
    assert seen_by_a_new_thread() == 2
