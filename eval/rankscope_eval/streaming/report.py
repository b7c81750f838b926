"""What a run over a stream of series did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rankscope.series.assembly import BadRow

NAMED = 20
"""Rows that a report names; the folder names all."""


@dataclass(frozen=True)
class StreamReport:
    """A finished folder of forecasts.

    Attributes:
        folder: where the parts are.
        model: its name.
        horizon: steps.
        series: forecasts in the folder.
        parts: files.
        parts_kept: files that an earlier run had finished.
        nan_only: series without a number, whose forecasts are NaN.
        left_out: rows that could not be used.
        named: the first of these.
        seconds: that this run took, opening the model included.
        series_per_second: of this run, once the model is open; on a cluster its opening counts.
    """

    folder: str
    model: str
    horizon: int
    series: int
    parts: int
    parts_kept: int
    nan_only: int
    left_out: int
    named: tuple[BadRow, ...]
    seconds: float
    series_per_second: float

    SCHEMA: ClassVar = "rankscope/forecast-stream@1"
