"""The result of an evaluation: rows, relative scores, and how each is written."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankscope_eval.published import PublishedScore
from rankscope_eval.relative import relative_scores

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "rankscope/eval@1"
ALL = "all"


@dataclass(frozen=True)
class EvalRow:
    """Scores of one model on one data set, and how they came about."""

    benchmark: str
    dataset: str
    model: str
    MASE: float
    WQL: float
    series: int
    windows: int
    prediction_length: int
    season_length: int
    seconds: float
    unscaled: int = 0
    """Windows without a seasonal error (constant context): left out of MASE."""
    fallbacks: int = 0
    """Windows that got the seasonal-naive forecast because the model could not be fitted."""
    published_MASE: float | None = None
    published_WQL: float | None = None


@dataclass(frozen=True)
class EvalSummary:
    """Relative scores of one model over one benchmark; ``left_out`` names unusable ratios."""

    model: str
    baseline: str
    benchmark: str
    datasets: int
    relative_MASE: float
    relative_WQL: float
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Skipped:
    """A task that could not be loaded from the hub, and why."""

    benchmark: str
    dataset: str
    reason: str


@dataclass(frozen=True)
class EvalReport:
    """Rows per data set and model, relative scores per benchmark and over all, and published scores."""

    suite: str
    baseline: str
    seed: int
    num_samples: int
    batch_size: int
    max_series: int | None
    seconds: float
    rows: tuple[EvalRow, ...]
    summary: tuple[EvalSummary, ...]
    published: tuple[PublishedScore, ...] = ()
    skipped: tuple[Skipped, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The report in the shape ``rankscope/eval@1``; a score that is not a number is None."""
        return {"schema": SCHEMA, **_finite(asdict(self))}

    def to_frame(self) -> pd.DataFrame:
        """The rows as a table."""
        import pandas as pd

        return pd.DataFrame([asdict(row) for row in self.rows])

    def to_csv(self, path: str | Path | None = None, *, force: bool = False) -> str:
        """The rows in the layout chronos-forecasting publishes: dataset, model, MASE, WQL, sorted by data
        set.

        Args:
            path: file to write (atomically); None only returns the text.
            force: replace an existing file.

        Raises:
            OutputError: the file exists and ``force`` is not set.
        """
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["dataset", "model", "MASE", "WQL"])
        for row in sorted(self.rows, key=lambda row: row.dataset):
            writer.writerow([row.dataset, row.model, repr(row.MASE), repr(row.WQL)])
        text = stream.getvalue()
        if path is not None:
            from rankscope.atomic import atomic_file

            with atomic_file(Path(path), force=force) as temporary:
                Path(temporary).write_text(text, encoding="utf-8")
        return text


def summarise(rows: Sequence[EvalRow], models: Sequence[str], baseline: str) -> tuple[EvalSummary, ...]:
    """Relative scores of each model, per benchmark and (where there are several) over all data sets."""
    benchmarks = list(dict.fromkeys(row.benchmark for row in rows))
    groups = [(name, [row for row in rows if row.benchmark == name]) for name in benchmarks]
    if len(benchmarks) > 1:
        groups.append((ALL, list(rows)))
    return tuple(_summary(group, model, baseline, name) for model in models for name, group in groups)


def _summary(rows: Sequence[EvalRow], model: str, baseline: str, benchmark: str) -> EvalSummary:
    def scores(name: str, metric: str) -> dict[str, float]:
        # Two benchmarks may hold a data set of one name: the key tells them apart, the plain name is what is
        # shown.
        return {f"{row.benchmark}/{row.dataset}": getattr(row, metric) for row in rows if row.model == name}

    mase = relative_scores(scores(model, "MASE"), scores(baseline, "MASE"))
    wql = relative_scores(scores(model, "WQL"), scores(baseline, "WQL"))
    left_out = tuple(dict.fromkeys(f"{m}: {d}" for m, r in (("MASE", mase), ("WQL", wql)) for d in r.left_out))
    datasets = min(mase.datasets, wql.datasets)
    return EvalSummary(model, baseline, benchmark, datasets, mase.value, wql.value, left_out)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
