"""Measure the rank structure of time-series models, compress them, and measure what that cost."""

from __future__ import annotations

from typing import Any

from rankscope.lowrank.register import register_model_types

__version__ = "0.2.0.dev0"

_HOMES = {
    "open_checkpoint": "rankscope.checkpoints",
    "list_bundled": "rankscope.checkpoints",
    "load_pipeline": "rankscope.forecast.pipeline",
    "measure_spectrum": "rankscope.measure.spectrum",
    "measure_flow": "rankscope.measure.flow",
    "measure_embedding": "rankscope.measure.embedding",
    "read_sweep_report": "rankscope.measure.sweep",
    "read_table2": "rankscope.measure.tradeoff",
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


register_model_types()
