"""Lock files: one process at a time."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from rankscope.errors import RankscopeError

PATIENCE = 0.2
"""Seconds between two looks at a lock that is waited for."""


@contextlib.contextmanager
def held(lock: Path, what: str, wait: float = 0.0) -> Iterator[None]:
    """Hold a lock file for the block; the system lets go of it when the process dies, however it dies.

    Args:
        lock: the file.
        what: begins the error: "the sweep is being run".
        wait: seconds to wait for another process to let go.

    Raises:
        RankscopeError: another process holds it.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        deadline = time.monotonic() + wait
        while not _taken(handle):
            if time.monotonic() >= deadline:
                raise RankscopeError(f"{what} by another process, which holds {lock}: wait for it or stop it.")
            time.sleep(PATIENCE)
        yield
    finally:
        os.close(handle)


def _taken(handle: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
