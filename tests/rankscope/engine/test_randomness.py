"""Random numbers of a computation begin at its seed and leave the caller's where they were."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import torch

from rankscope.engine.randomness import TOGETHER, seeded, seeded_items


def numbers(count: int) -> Iterator[float]:
    for _ in range(count):
        yield float(torch.rand(1))


def expected(seed: int, count: int) -> list[float]:
    generator = torch.Generator().manual_seed(seed)
    return [float(torch.rand(1, generator=generator)) for _ in range(count)]


def test_a_seeded_block_leaves_the_state_of_the_caller() -> None:
    torch.manual_seed(7)
    with seeded(3):
        assert list(numbers(2)) == expected(3, 2)
    assert list(numbers(2)) == expected(7, 2)


def test_items_and_the_caller_draw_from_streams_of_their_own() -> None:
    count = 2 * TOGETHER + 3
    torch.manual_seed(7)
    both = [(one, float(torch.rand(1))) for one in seeded_items(lambda: numbers(count), 3)]
    assert [one for one, _ in both] == expected(3, count)
    assert [other for _, other in both] == expected(7, count)


def test_threads_draw_what_they_would_draw_alone() -> None:
    count, found = 20 * TOGETHER, {}

    def draw(seed: int) -> None:
        found[seed] = list(seeded_items(lambda: numbers(count), seed))

    threads = [threading.Thread(target=draw, args=(seed,)) for seed in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == {seed: expected(seed, count) for seed in range(4)}


def test_what_is_made_at_once_is_drawn_from_the_seed_too() -> None:
    torch.manual_seed(7)
    assert list(seeded_items(lambda: list(numbers(3)), 5)) == expected(5, 3)
    assert list(numbers(1)) == expected(7, 1)


def test_blocks_that_threads_enter_together_leave_the_state_of_the_caller() -> None:
    torch.manual_seed(7)
    found = {}
    first_is_in = threading.Event()

    def first() -> None:
        with seeded(1):
            first_is_in.set()
            second.join(0.2)
            found[1] = list(numbers(2))

    def other() -> None:
        first_is_in.wait()
        with seeded(2):
            found[2] = list(numbers(2))

    second = threading.Thread(target=other)
    second.start()
    first()
    second.join()
    assert found == {1: expected(1, 2), 2: expected(2, 2)}
    assert list(numbers(2)) == expected(7, 2)
