"""Progress bar for terminals, shown only for work longer than two seconds, and progress lines for logs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.engine import Progress
from rankscope.errors import printable
from rankscope_cli.exits import say

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

DELAY = 2.0
"""Seconds before the bar appears."""
PACE = 30.0
"""Seconds between progress lines when there is no terminal."""
GOES_ON = "rerun the same command to resume"
RESUMES = "rerun with --resume to continue"


@contextmanager
def progress_bar(what: str, *, delay: float = DELAY) -> Iterator[Progress]:
    """Yield a progress callback that draws a bar with an ETA on stderr after ``delay`` seconds.

    Without a terminal it prints lines like `progress_lines`, but none in the first `PACE` seconds.

    Args:
        what: description until the first report.
        delay: seconds before the bar appears.
    """
    if not sys.stderr.isatty():
        yield _Lines(PACE, quiet=PACE).report
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
    """Like `progress_bar`, but without a terminal print a line on stderr at most every ``pace`` seconds from the start.

    For long jobs whose output goes to a log. The first report of a phase is always printed, and the last one if the
    total is known; lines start with the time of day and end with the remaining time.

    Args:
        what: description until the first report.
        stopped: hint on how to resume, printed after Ctrl-C.
        begun: path that exists once the work can be resumed; no hint before that.
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
    """Rate-limited progress lines, none in the first ``quiet`` seconds."""

    def __init__(self, pace: float, quiet: float = 0.0) -> None:
        self._pace = pace
        self._from = time.monotonic() + quiet
        self._printed: float | None = None
        self._phase: tuple[float, int, int] | None = None
        """Start time of the phase, items done at its start, and its total."""

    def report(self, done: int, total: int, what: str) -> None:
        """Handle a progress report (`rankscope.engine.Progress`)."""
        now = time.monotonic()
        if self._phase is None or total != self._phase[2] or done < self._phase[1]:
            self._phase, self._printed = (now, done, total), None
        rated = self._printed is not None and now - self._printed < self._pace and (done < total or not total)
        if now < self._from or rated:
            return
        self._printed = now
        begun, before, _ = self._phase
        count = f"{done}/{total} " if total else ""
        # one item says little of the others: the first one of many loads and compiles
        left = (now - begun) / (done - before) * (total - done) if before + 1 < done < total else 0.0
        eta = f", {_duration(left)} left" if left >= 1 else ""
        with suppress(OSError):  # the reader of a pipe may have left
            print(f"{time.strftime('%H:%M:%S')} {count}{printable(what)}{eta}", file=sys.stderr, flush=True)  # noqa: T201


def _duration(seconds: float) -> str:
    """Format a duration in its two largest units.

    >>> _duration(12.4), _duration(754), _duration(98_765)
    ('12 s', '12 min 34 s', '27 h 26 min')
    """
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"


class _DelayedBar:
    """Progress bar that stays hidden until `show`."""

    def __init__(self, what: str) -> None:
        self._lock = threading.Lock()
        self._state: tuple[int, int, str] = (0, 0, what)
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._closed = False

    def report(self, done: int, total: int, what: str) -> None:
        """Handle a progress report (`rankscope.engine.Progress`)."""
        with self._lock:
            new_phase = done < self._state[0] or total != self._state[1]
            self._state = (done, total, printable(what) or self._state[2])
            if self._bar is not None and self._task is not None:
                if new_phase:  # reset the speed estimate
                    self._bar.reset(self._task)
                self._update()

    def show(self) -> None:
        """Start drawing the bar; called by the timer."""
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
        from rich.table import Column

        with self._lock:
            if self._closed:
                return
            self._bar = Bar(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False, table_column=Column(max_width=44, no_wrap=True)),
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
        """Stop and remove the bar."""
        with self._lock:
            self._closed = True
            if self._bar is not None:
                self._bar.stop()

    def _update(self) -> None:
        done, total, what = self._state
        if self._bar is not None and self._task is not None:
            count = f"{done}/{total}" if total else ""
            self._bar.update(self._task, completed=done, total=total or None, description=what, count=count)
