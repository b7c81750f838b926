"""What writing shards did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class SynthReport:
    """A finished folder of shards.

    Attributes:
        folder: where it is.
        kind: of the series.
        series: how many there are.
        length: observations per series, at most.
        shards: number of files.
        bytes: size of the files together.
        written: series that this call wrote; the others were there already.
        seconds: wall time of this call.
        series_per_second: of the series written.
        mb_per_second: of their files, 10⁶ bytes.
        left_out: series of the user's files that were left out, by reason.
    """

    folder: str
    kind: str
    series: int
    length: int
    shards: int
    bytes: int
    written: int
    seconds: float
    series_per_second: float
    mb_per_second: float
    left_out: dict[str, int]

    SCHEMA: ClassVar = "rankscope/synth@1"
