"""Interleaved benchmarks of inference time and memory, with a roofline model.

Names are imported lazily.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankscope.lazy import attach

if TYPE_CHECKING:
    from rankscope_eval.bench.case import Case, Settings, read_case
    from rankscope_eval.bench.clock import Clock
    from rankscope_eval.bench.report import BenchReport, BenchRow
    from rankscope_eval.bench.running import run_bench

__all__ = ["run_bench", "Clock", "Settings", "Case", "read_case", "BenchReport", "BenchRow"]

_HOMES = {
    "run_bench": ".running",
    "Clock": ".clock",
    "Settings": ".case",
    "Case": ".case",
    "read_case": ".case",
    "BenchReport": ".report",
    "BenchRow": ".report",
}

__getattr__, __dir__ = attach(__name__, _HOMES)
