"""Interrupts that wait for the end of a step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType


@contextmanager
def uninterrupted() -> Iterator[Sequence[object]]:
    """Let a Ctrl-C or SIGTERM wait until the block ends; a second one does not wait.

    Yields what waits: empty until there is one, so that the block can end early.

    Python handles signals in its main thread: in another one, and of signals without a handler, nothing waits.
    """
    waiting: list[Callable[[], object]] = []

    def hold(number: int, frame: FrameType | None) -> None:
        handler = before[number]
        assert callable(handler)
        waiting.append(lambda: handler(number, frame))
        if len(waiting) > 1:
            waiting.pop()()

    main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if main else ()
    before = {int(one): signal.getsignal(one) for one in numbers if callable(signal.getsignal(one))}
    for number in before:
        signal.signal(number, hold)
    try:
        yield waiting
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for one in waiting:
            one()
