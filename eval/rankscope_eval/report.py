"""Evaluation report: rows, relative scores, and export."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rankscope.io import codec
from rankscope.measure.tradeoff import Verdict
from rankscope_eval.relative import Draws, Interval, Sums, interval, relative_scores, resample, usable_ratios
from rankscope_eval.suites import PublishedScore
from rankscope_eval.verdict import MARGIN, judge

if TYPE_CHECKING:
    import pandas as pd

ALL = "all"


@dataclass(frozen=True)
class EvalRow:
    """Scores of a model on a data set."""

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
    """Windows with zero seasonal error (constant context), excluded from MASE."""
    fallbacks: int = 0
    """Windows forecast by seasonal naive because fitting failed."""
    published_MASE: float | None = None
    published_WQL: float | None = None
    MASE_interval: Interval | None = None
    """95 % interval over the series of MASE over the baseline's; None for fewer than three series."""
    WQL_interval: Interval | None = None
    sums: Sums | None = field(default=None, compare=False, repr=False, metadata=codec.UNWRITTEN)
    """Numerators and denominators of the scores by series; not exported."""

    @property
    def key(self) -> str:
        """Benchmark and data set: two benchmarks may hold a data set of one name."""
        return f"{self.benchmark}/{self.dataset}"


@dataclass(frozen=True)
class EvalSummary:
    """Relative scores of one model over one benchmark; ``left_out`` names unusable ratios.

    The intervals, of 95 %, say how far the relative scores can be trusted (`rankscope_eval.relative`); None where
    there is nothing to resample. The verdicts are of 90 % intervals and name the worst data set
    (`rankscope_eval.verdict`); None in reports of earlier releases.
    """

    model: str
    baseline: str
    benchmark: str
    datasets: int
    relative_MASE: float
    relative_WQL: float
    left_out: tuple[str, ...] = ()
    MASE_interval: Interval | None = None
    WQL_interval: Interval | None = None
    MASE_verdict: Verdict | None = None
    WQL_verdict: Verdict | None = None


@dataclass(frozen=True)
class Skipped:
    """Task that could not be loaded from the hub, with the reason."""

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

    SCHEMA: ClassVar = "rankscope/eval@1"

    def to_frame(self) -> pd.DataFrame:
        """Convert rows to a table."""
        import pandas as pd

        return pd.DataFrame([vars(row) for row in self.rows]).drop(columns="sums")

    def to_csv(self, path: str | Path | None = None, *, force: bool = False) -> str:
        """Export rows in the layout that chronos-forecasting publishes: dataset, model, MASE, WQL, sorted by data set.

        Args:
            path: file to write atomically; None only returns the text.
            force: overwrite an existing file.

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
            from rankscope.io.atomic import atomic_file

            with atomic_file(Path(path), force=force) as temporary:
                Path(temporary).write_text(text, encoding="utf-8")
        return text


def summarise(
    rows: Sequence[EvalRow], models: Sequence[str], baseline: str, margin: float = MARGIN
) -> tuple[EvalSummary, ...]:
    """Relative scores of each model, per benchmark and (where there are several) over all data sets."""
    benchmarks = list(dict.fromkeys(row.benchmark for row in rows))
    groups = [(name, [row for row in rows if row.benchmark == name]) for name in benchmarks]
    if len(benchmarks) > 1:
        groups.append((ALL, list(rows)))
    found = []
    for model in models:
        draws = _draws(rows, model, baseline)
        found += [_summary(group, model, baseline, name, draws, margin) for name, group in groups]
    return tuple(found)


def with_intervals(rows: Sequence[EvalRow], baseline: str) -> tuple[EvalRow, ...]:
    """Rows with the intervals of their ratios to the baseline's scores."""
    draws = {model: _draws(rows, model, baseline) for model in {row.model for row in rows} - {baseline}}

    def spans(row: EvalRow) -> list[Interval | None]:
        pair = draws.get(row.model, {}).get(row.key, (None, None))
        return [None if one is None else interval([one]) for one in pair]

    return tuple(replace(row, MASE_interval=mase, WQL_interval=wql) for row in rows for mase, wql in [spans(row)])


def _by_data_set(rows: Sequence[EvalRow], model: str) -> dict[str, EvalRow]:
    return {row.key: row for row in rows if row.model == model}


def _draws(rows: Sequence[EvalRow], model: str, baseline: str) -> dict[str, tuple[Draws | None, Draws | None]]:
    """Resampled ratios of MASE and of WQL by data set."""
    ours, theirs = _by_data_set(rows, model), _by_data_set(rows, baseline)
    found = {}
    for name in ours.keys() & theirs.keys():
        first, second = ours[name].sums, theirs[name].sums
        if first is not None and second is not None:
            found[name] = resample(first, second, name)
    return found


def _summary(
    rows: Sequence[EvalRow],
    model: str,
    baseline: str,
    benchmark: str,
    draws: Mapping[str, tuple[Draws | None, Draws | None]],
    margin: float,
) -> EvalSummary:
    ours, theirs = _by_data_set(rows, model), _by_data_set(rows, baseline)
    values, intervals, verdicts = [], [], []
    left_out: list[str] = []
    for position, metric in enumerate(("MASE", "WQL")):
        scores, base = ({name: getattr(row, metric) for name, row in of.items()} for of in (ours, theirs))
        relative, ratios = relative_scores(scores, base), usable_ratios(scores, base)
        known = {name: pair[position] for name, pair in draws.items() if name in ratios}
        usable = [one for name in ratios if (one := known.get(name)) is not None]
        values.append(relative)
        # One of fewer data sets than the mean's would not be that mean's interval.
        intervals.append(interval(usable) if len(usable) == relative.datasets else None)
        verdict = judge(known, ratios, margin)
        verdicts.append(replace(verdict, worst=None if verdict.worst is None else ours[verdict.worst].dataset))
        left_out += [f"{metric}: {name}" for name in relative.left_out]
    mase, wql = values
    mase_interval, wql_interval = intervals
    mase_verdict, wql_verdict = verdicts
    return EvalSummary(
        model,
        baseline,
        benchmark,
        min(mase.datasets, wql.datasets),
        mase.value,
        wql.value,
        tuple(dict.fromkeys(left_out)),
        mase_interval,
        wql_interval,
        mase_verdict,
        wql_verdict,
    )
