"""Ctrl-C that waits."""

from __future__ import annotations

import signal
import threading

import pytest

from rankscope.engine.interrupts import uninterrupted


@pytest.mark.parametrize("times", [1, 2])
def test_one_interrupt_waits_for_the_end_of_the_block_and_a_second_does_not(times: int) -> None:
    before, done = signal.getsignal(signal.SIGINT), 0

    def work() -> None:
        nonlocal done
        with uninterrupted():
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
            done = times

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == (1 if times == 1 else 0)
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_that_waits_comes_where_the_block_fails() -> None:
    def work() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            raise ValueError

    with pytest.raises(KeyboardInterrupt):
        work()


def test_other_threads_are_left_alone() -> None:
    seen: list[object] = []

    def work() -> None:
        with uninterrupted():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]
