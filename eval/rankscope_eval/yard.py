"""What compressed models are measured on, and the two ways to do it: forecasts of series, or a text."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rankscope.checkpoints import Checkpoint
from rankscope.compress.calibration import CalibrationSet
from rankscope.engine.device import resolve_dtype
from rankscope.engine.progress import Progress
from rankscope.measure.cache import cache_bytes
from rankscope.measure.table2 import DatasetScore, Measures, Original
from rankscope_eval.forecasters import Forecasting, check_counts

OVERLAP_SEED = 1_000_000
"""Seed of the series that outputs are compared on: no calibration set has it."""
TIMED = 8
"""Series, or windows of a text, of the batch that is timed."""


@dataclass(frozen=True)
class Yard:
    """What measurements depend on, beside the model.

    Attributes:
        suite: shipped suite or YAML file that forecasts are scored on; ``embedded`` by default.
        data: folder of local data files.
        max_series: only the first series of each data set.
        how: models forecast.
        overlap_series: generated series, or windows of a text, that outputs are compared on.
        calibration: name of the set that methods look at, ``mixture:256`` by default; ``text:N`` with a text model.
        text: file of a text model.
    """

    suite: str | None = None
    data: str | None = None
    max_series: int | None = None
    how: Forecasting = field(default_factory=lambda: Forecasting(runtime="stock"))
    overlap_series: int = 1000
    calibration: str | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        check_counts(overlap_series=self.overlap_series)
        resolve_dtype(self.how.dtype)


class Yardstick(Protocol):
    """One way to measure; making it checks all that can be checked without running a model."""

    yard: Yard

    def settings(self) -> dict[str, Any]:
        """What the measurements are a function of, as JSON has it."""
        ...

    def calibration(self, seed: int) -> CalibrationSet:
        """The set that a method looks at."""
        ...

    def probe(self, seed: int) -> CalibrationSet | None:
        """What allocation ``sensitivity`` compares answers on; None for the set that it takes by itself."""
        ...

    def original(self, progress: Progress) -> Original:
        """Measure the original."""
        ...

    def compare(
        self, folder: Path, original: Original, progress: Progress
    ) -> tuple[Measures, tuple[DatasetScore, ...]]:
        """Measure a compressed model against the original."""
        ...


def common_settings(yard: Yard) -> dict[str, Any]:
    """What every measurement depends on."""
    return {
        "seed": yard.how.seed,
        "overlap_series": yard.overlap_series,
        "calibration": yard.calibration,
        "device": yard.how.device,
        "dtype": yard.how.dtype,
        "overlap_seed": OVERLAP_SEED,
    }


def sizes(checkpoint: Checkpoint) -> Original:
    """Count what a checkpoint stores and caches."""
    return Original(checkpoint.parameters, checkpoint.bytes, cache_bytes(checkpoint))


def counts(size: Original) -> dict[str, int]:
    """The same as fields of `Measures`."""
    return {"parameters": size.parameters, "bytes": size.bytes, "cache_bytes": size.cache_bytes}
