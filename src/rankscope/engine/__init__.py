"""Execution on cores, devices, processes or a cluster, with one form of progress reports."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int, str], None]
"""Called as ``progress(done, total, what)``; ``total`` may be 0 while it is unknown."""


def staged(progress: Progress, stage: str) -> Progress:
    """Name the stage of the work before what is reported."""
    return lambda done, total, what: progress(done, total, f"{stage}: {what}")


def silent(done: int, total: int, what: str) -> None:
    """Report nothing: the default of every library function."""
