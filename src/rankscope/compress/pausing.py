"""Forward passes that pause: several models can be taken through their layers side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

THREAD = "pausing pass"


class PausingPass(threading.Thread):
    """A forward pass that waits wherever `show` is called until its owner resumes it; one of the two runs at a time.

    It lives in a ``with`` block, whose end is the end of the pass, wherever that is.

    Attributes:
        masks, stream: what hooks note within the pass.
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True, name=THREAD)
        self.masks: dict[str, Any] = {}
        self.stream: Any = None
        self._call, self._ended = call, False
        self._shown: tuple[Any, ...] | None = None
        self._error: BaseException | None = None
        self._go, self._there = threading.Semaphore(0), threading.Semaphore(0)

    def __enter__(self) -> PausingPass:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._go.release()
        self.join()

    def run(self) -> None:
        """Make the pass."""
        self._go.acquire()
        try:
            if not self._ended:
                with torch.no_grad():
                    self._call()
        except _EndedError:
            pass
        except BaseException as error:  # raised where the owner waits
            self._error = error
        self._there.release()

    def show(self, *values: Any) -> None:
        """Hand something to the owner and wait; called within the pass."""
        self._shown = values
        self._there.release()
        self._go.acquire()
        if self._ended:
            raise _EndedError

    def resume(self) -> tuple[Any, ...]:
        """Go on to where something is shown, and take it."""
        self._go.release()
        self._there.acquire()
        if self._error is not None:
            raise self._error
        shown, self._shown = self._shown, None
        assert shown is not None, "the pass is at its end"
        return shown


class _EndedError(Exception):
    """Leaves a forward pass."""


def current_pass() -> PausingPass:
    """The pass that is being made, for hooks within it."""
    found = threading.current_thread()
    assert isinstance(found, PausingPass)
    return found
