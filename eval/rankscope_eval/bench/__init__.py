"""Interleaved benchmarks of inference time and memory, with a roofline model.

Names are imported lazily.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankscope_eval.bench.case import Case, Settings, read_case
    from rankscope_eval.bench.clock import Clock
    from rankscope_eval.bench.report import BenchReport, BenchRow
    from rankscope_eval.bench.running import run_bench

__all__ = ["run_bench", "Clock", "Settings", "Case", "read_case", "BenchReport", "BenchRow"]

_HOME = {
    "run_bench": "running",
    "Clock": "clock",
    "Settings": "case",
    "Case": "case",
    "read_case": "case",
    "BenchReport": "report",
    "BenchRow": "report",
}


def __getattr__(name: str) -> Any:
    """Import ``name`` lazily from its module."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
