"""Measure the rank structure of time-series models, compress them, and measure what that cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankscope.lazy import attach
from rankscope.lowrank.register import register_model_types

if TYPE_CHECKING:
    from rankscope.checkpoints import list_bundled, open_checkpoint
    from rankscope.forecast.pipeline import load_pipeline
    from rankscope.measure.embedding import measure_embedding
    from rankscope.measure.flow import measure_flow
    from rankscope.measure.spectrum import measure_spectrum
    from rankscope.measure.sweep import read_sweep_report
    from rankscope.measure.tradeoff import read_table2

__version__ = "0.2.0.dev0"

_HOMES = {
    "open_checkpoint": ".checkpoints",
    "list_bundled": ".checkpoints",
    "load_pipeline": ".forecast.pipeline",
    "measure_spectrum": ".measure.spectrum",
    "measure_flow": ".measure.flow",
    "measure_embedding": ".measure.embedding",
    "read_sweep_report": ".measure.sweep",
    "read_table2": ".measure.tradeoff",
}

__all__ = [
    "__version__",
    "list_bundled",
    "load_pipeline",
    "measure_embedding",
    "measure_flow",
    "measure_spectrum",
    "open_checkpoint",
    "read_sweep_report",
    "read_table2",
]

__getattr__, __dir__ = attach(__name__, _HOMES)

register_model_types()
