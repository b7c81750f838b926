"""A progress bar that appears only on a terminal and only when work takes longer than two seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.engine import Progress, silent
from rankscope_cli.exits import say

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

DELAY = 2.0
"""Seconds of silence before the bar: shorter work needs none."""
PACE = 30.0
"""Seconds between two lines, where lines are printed in place of a bar."""
GOES_ON = "the same command goes on where this one left off"
RESUMES = "the same command with --resume goes on where this one left off"
SNAPSHOT = "the same command with --resume goes on from the newest snapshot"


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


@contextmanager
def progress_lines(
    what: str, *, stopped: str = "", begun: str | Path | None = None, pace: float = PACE
) -> Iterator[Progress]:
    """Like `progress_bar`, but off a terminal print a line on stderr at most every ``pace`` seconds.

    For work of hours, whose output goes to a file that somebody looks into. The first and the last report of a phase
    are always printed where the total is known; lines begin with the time of day and end with what is left of it.

    Args:
        what: what is being done, until the first report says more.
        stopped: how to go on, said after Ctrl-C.
        begun: what lies on the disk once there is something to go on from; without it nothing is said.
        pace: seconds between two lines.
    """
    try:
        if sys.stderr.isatty():
            with progress_bar(what) as report:
                yield report
        else:
            yield _Lines(pace).report
    except KeyboardInterrupt:
        if stopped and (begun is None or Path(begun).exists()):
            say(f"stopped: {stopped}.")
        raise


class _Lines:
    """Prints reports, not too many of them."""

    def __init__(self, pace: float) -> None:
        self._pace = pace
        self._printed: float | None = None
        self._phase: tuple[float, int, int] | None = None
        """When the phase began, how much was done by then, and its total."""

    def report(self, done: int, total: int, what: str) -> None:
        """Take a report from the library: a `rankscope.engine.Progress`."""
        now = time.monotonic()
        if self._phase is None or total != self._phase[2] or done < self._phase[1]:
            self._phase, self._printed = (now, done, total), None
        if self._printed is not None and now - self._printed < self._pace and (done < total or not total):
            return
        self._printed = now
        begun, before, _ = self._phase
        count = f"{done}/{total} " if total else ""
        left = (now - begun) / (done - before) * (total - done) if before < done < total else 0.0
        eta = f", {_duration(left)} left" if left else ""
        print(f"{time.strftime('%H:%M:%S')} {count}{what}{eta}", file=sys.stderr, flush=True)  # noqa: T201


def _duration(seconds: float) -> str:
    """Write a time span in its two largest units.

    >>> _duration(12.4), _duration(754), _duration(98_765)
    ('12 s', '12 min 34 s', '27 h 26 min')
    """
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"


class _DelayedBar:
    """Remembers reports until it is shown."""

    def __init__(self, what: str) -> None:
        self._lock = threading.Lock()
        self._state: tuple[int, int, str] = (0, 0, what)
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._closed = False

    def report(self, done: int, total: int, what: str) -> None:
        """Take a report from the library: a `rankscope.engine.Progress`."""
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
                TextColumn("{task.description}", table_column=Column(max_width=44, no_wrap=True)),
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
