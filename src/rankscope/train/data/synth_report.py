"""What writing shards did."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


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

    def to_json(self) -> dict[str, Any]:
        """Return the result in the shape ``rankscope/synth@1``."""
        return {"schema": "rankscope/synth@1", **dataclasses.asdict(self)}
