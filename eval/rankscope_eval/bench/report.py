"""The result of a benchmark: rows, ratios to the baseline, rates of the machine, and how each is written."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rankscope_eval.bench.roofline import Rates
from rankscope_eval.bench.turns import Spread

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class BenchRow:
    """What one case took.

    Attributes:
        label: the case as it is written on the command line.
        model: and so on up to threads, the case as it ran.
        seconds: of one forecast of the batch, over rounds.
        turns: the same round by round.
        repeats: forecasts per turn, whose mean the turn is.
        tokens_per_second: forecast values (series × sample paths × steps) per second at the median.
        peak_bytes: resident memory above that of the imports, weights included; on a GPU torch's peak.
        loaded_bytes: resident memory that loading added; on a GPU of the host.
        weight_bytes: of parameters and buffers.
        cache_bytes: keys and values kept from token to token, None where they are not counted.
        flops: of the matrix products of the algorithm without waste, None where they are not counted.
        moved_bytes: that it has to read and write.
        roofline_seconds: the least time, None where work is not counted.
        achieved: roofline_seconds / median seconds.
    """

    label: str
    model: str
    runtime: str
    device: str
    dtype: str
    batch: int
    num_samples: int
    horizon: int
    context: int
    threads: int
    seconds: Spread
    turns: tuple[float, ...]
    repeats: int
    tokens_per_second: float
    peak_bytes: int
    loaded_bytes: int
    weight_bytes: int
    cache_bytes: int | None = None
    flops: int | None = None
    moved_bytes: int | None = None
    roofline_seconds: float | None = None
    achieved: float | None = None


@dataclass(frozen=True)
class BenchRatio:
    """A case over the baseline at the same batch: seconds round by round, peak memory."""

    label: str
    baseline: str
    batch: int
    seconds: Spread
    peak_bytes: float | None


@dataclass(frozen=True)
class Failure:
    """A case that could not be run to its end, and why."""

    label: str
    batch: int
    reason: str


@dataclass(frozen=True)
class BenchReport:
    """Rows by batch and case, ratios, and the rates that the floors stand on."""

    machine: dict[str, Any]
    baseline: str | None
    rounds: int
    seed: int
    rows: tuple[BenchRow, ...]
    ratios: tuple[BenchRatio, ...]
    rates: tuple[Rates, ...]
    failures: tuple[Failure, ...] = ()

    SCHEMA: ClassVar = "rankscope/bench@1"

    def to_frame(self) -> pd.DataFrame:
        """One row per case and batch, with its ratios."""
        import pandas as pd

        over = {(one.label, one.batch): one for one in self.ratios}
        records = []
        for row in self.rows:
            fields = {key: value for key, value in asdict(row).items() if key not in ("seconds", "turns")}
            fields |= {f"seconds_{key}": value for key, value in asdict(row.seconds).items()}
            ratio = over.get((row.label, row.batch))
            fields |= {
                "seconds_ratio": None if ratio is None else ratio.seconds.median,
                "peak_ratio": None if ratio is None else ratio.peak_bytes,
            }
            records.append(fields)
        return pd.DataFrame(records)
