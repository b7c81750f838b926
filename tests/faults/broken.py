"""A command that does everything wrong, to try the search for faults on: it must be found out."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path


def main(words: Sequence[str]) -> None:
    """Write a file in place by way of one that is left, ask for an address, and hide what went wrong."""
    made, rest = Path(words[0]), Path(f"{words[0]}.{os.getpid()}.tmp")
    with contextlib.suppress(OSError):
        socket.getaddrinfo("localhost", 80)
    with contextlib.suppress(OSError):
        rest.write_text("new" * 100)
        made.write_text(rest.read_text())
        os.remove(rest)
    sys.exit(0)
