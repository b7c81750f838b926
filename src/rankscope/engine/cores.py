"""How many processor cores there are to work on, without loading torch."""

from __future__ import annotations

import os


def available_cores() -> int:
    """Processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
