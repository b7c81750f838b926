"""A progress bar that appears only on a terminal and only when work takes longer than two seconds."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rankscope.progress import Progress, silent

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

DELAY = 2.0
"""Seconds of silence before the bar: shorter work needs none."""


@contextmanager
def progress_bar(what: str, *, delay: float = DELAY) -> Iterator[Progress]:
    """Yield the function that library calls report to, and draw a bar with an ETA on stderr if it lasts.

    Args:
        what: what is being done, until the first report says more.
        delay: seconds before the bar appears.
    """
    if not sys.stderr.isatty():
        yield silent
        return
    bar = _DelayedBar(what)
    timer = threading.Timer(delay, bar.show)
    timer.daemon = True
    timer.start()
    try:
        yield bar.report
    finally:
        timer.cancel()
        bar.close()


class _DelayedBar:
    """Remembers reports until it is shown."""

    def __init__(self, what: str) -> None:
        self._lock = threading.Lock()
        self._state: tuple[int, int, str] = (0, 0, what)
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._closed = False

    def report(self, done: int, total: int, what: str) -> None:
        """Take a report from the library: a `rankscope.progress.Progress`."""
        with self._lock:
            begun_anew = done < self._state[0] or total != self._state[1]
            self._state = (done, total, what or self._state[2])
            if self._bar is not None and self._task is not None:
                if begun_anew:  # another phase: its speed says nothing about this one
                    self._bar.reset(self._task)
                self._update()

    def show(self) -> None:
        """Draw the bar from now on; called by the timer."""
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
        from rich.table import Column

        with self._lock:
            if self._closed:
                return
            self._bar = Bar(
                SpinnerColumn(),
                TextColumn("{task.description}", table_column=Column(max_width=32, no_wrap=True)),
                BarColumn(bar_width=20),
                TextColumn("{task.fields[count]}"),
                TimeRemainingColumn(),
                refresh_per_second=5,
                console=Console(stderr=True),
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._task = self._bar.add_task(self._state[2], total=None, count="")
            self._update()
            self._bar.start()

    def close(self) -> None:
        """Take the bar away."""
        with self._lock:
            self._closed = True
            if self._bar is not None:
                self._bar.stop()

    def _update(self) -> None:
        done, total, what = self._state
        if self._bar is not None and self._task is not None:
            count = f"{done}/{total}" if total else ""
            self._bar.update(self._task, completed=done, total=total or None, description=what, count=count)
