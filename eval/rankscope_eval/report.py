"""Evaluation report: rows, relative scores, and export."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from rankscope.io import codec
from rankscope.measure.tradeoff import Verdict
from rankscope_eval.metrics import StepScores
from rankscope_eval.relative import (
    Bands,
    Draws,
    Interval,
    Sums,
    interval,
    relative_scores,
    resample,
    skill,
    usable_ratios,
    win_rate,
)
from rankscope_eval.suites import PublishedScore
from rankscope_eval.verdict import MARGIN, judge

if TYPE_CHECKING:
    import pandas as pd

_DrawsByName = dict[str, tuple[Draws | None, Draws | None]]
ALL = "all"
_ROUNDING = 1e-6
"""Share of the largest error of a data set below which that of a series is rounding."""
METRICS = ("MASE", "WQL", "SQL", "WAPE", "MSIS", "coverage")
"""Metrics of a row."""
PROTOCOL = ("benchmark", "series", "windows", "prediction_length", "season_length")
"""Fields of a row that name its data set and windows."""
COUNTED = ("unscaled", "fallbacks")
"""Fields of a row that count windows which were treated otherwise."""
SETTINGS = ("baseline", "seed", "num_samples", "batch_size", "max_series", "dtype", "runtime", "revision", "margin")
"""Fields of a report that its tables repeat in every row."""


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
    season_length: int | None
    """None where it differs from series to series."""
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
    SQL: float | None = None
    """See `rankscope_eval.metrics.Scores` for this and the following; None in reports of earlier releases."""
    WAPE: float | None = None
    MSIS: float | None = None
    coverage: float | None = None
    steps: StepScores | None = None
    source: str = ""
    """Data sets of one source are cuts of the same data; empty for the data set itself."""
    bands: Bands | None = field(default=None, compare=False, repr=False, metadata=codec.UNWRITTEN)
    """Numerators and denominators of the scores by series and part of the horizon; not exported."""

    @property
    def key(self) -> str:
        """Benchmark and data set: two benchmarks may hold a data set of one name."""
        return f"{self.benchmark}/{self.dataset}"

    @property
    def sums(self) -> Sums | None:
        """Numerators and denominators of the scores by series."""
        return None if self.bands is None else self.bands.sum(axis=1)


@dataclass(frozen=True)
class EvalSummary:
    """Relative scores of one model over one benchmark; ``left_out`` names unusable ratios.

    The intervals, of 95 %, say how far the relative scores can be trusted (`rankscope_eval.relative`); None where
    there is nothing to resample. The verdicts are of 90 % intervals and name the worst data set
    (`rankscope_eval.verdict`). Skill scores are 1 − the relative score with ratios clipped, win rates the share of data
    sets with a lower score than the baseline's. None in reports of earlier releases.
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
    MASE_skill: float | None = None
    WQL_skill: float | None = None
    MASE_win_rate: float | None = None
    WQL_win_rate: float | None = None


@dataclass(frozen=True)
class Slice:
    """A model over the baseline on a part of the data.

    Attributes:
        model: name of the model.
        by: what the part is one of: horizon, frequency, season, length or intermittency.
        part: its name, such as ``last quarter``.
        datasets: data sets in it that have a ratio of WQL.
        series: series in it, of all data sets.
        WQL: geometric mean over the data sets of WQL on the part over the baseline's there.
        MASE: the same of MASE.
        WQL_interval: of the worst parts alone; of 95 % for all parts of a model together (Bonferroni).
        MASE_interval: likewise.
    """

    model: str
    by: str
    part: str
    datasets: int
    series: int
    WQL: float
    MASE: float
    WQL_interval: Interval | None = None
    MASE_interval: Interval | None = None


@dataclass(frozen=True)
class Skipped:
    """Task that could not be loaded from the hub, with the reason."""

    benchmark: str
    dataset: str
    reason: str


@dataclass(frozen=True)
class EvalReport:
    """Rows per data set and model, relative scores per benchmark and over all, and published scores.

    ``slices`` are the models over the baseline on parts of the data, the worst of each model first.
    """

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
    slices: tuple[Slice, ...] = ()
    dtype: str | None = None
    """As asked for, like the two that follow; None in reports of earlier releases."""
    runtime: str | None = None
    revision: str | None = None
    margin: float | None = None

    SCHEMA: ClassVar = "rankscope/eval@1"

    def to_frame(self) -> pd.DataFrame:
        """Convert rows to a table, with the settings of the report in every row."""
        import pandas as pd

        made = {name: getattr(self, name) for name in SETTINGS}
        return pd.DataFrame([{**vars(row), **made} for row in self.rows]).drop(columns=["bands", "steps"])

    def summary_frame(self) -> pd.DataFrame:
        """One row per model and benchmark: relative scores, their intervals (two columns each), and the verdicts."""
        import pandas as pd

        rows = []
        for one in self.summary:
            row = {**vars(one), "left_out": ", ".join(one.left_out)}
            for metric in ("MASE", "WQL"):
                ends = row.pop(f"{metric}_interval") or (None, None)
                row |= {f"{metric}_low": ends[0], f"{metric}_high": ends[1]}
                verdict = row.pop(f"{metric}_verdict")
                row |= {f"{metric}_verdict": None if verdict is None else verdict.word}
            rows.append(row)
        return pd.DataFrame(rows)

    def to_csv(self) -> str:
        """Return rows in the layout that chronos-forecasting publishes, sorted by data set, with further columns.

        The columns are dataset, model, MASE, WQL, then SQL, WAPE, MSIS, coverage, and how the row was made: benchmark,
        series, windows, prediction_length, season_length, unscaled, fallbacks, baseline, seed, num_samples, batch_size,
        max_series, dtype, runtime, revision, margin.
        """
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["dataset", "model", *METRICS, *PROTOCOL, *COUNTED, *SETTINGS])
        made = [getattr(self, name) for name in SETTINGS]
        for row in sorted(self.rows, key=lambda row: row.dataset):
            scores = (getattr(row, name) for name in METRICS)
            told = (getattr(row, name) for name in (*PROTOCOL, *COUNTED))
            writer.writerow(
                [row.dataset, row.model, *("" if one is None else repr(one) for one in scores), *told, *made]
            )
        return stream.getvalue()


class Comparison:
    """Models against a baseline; series are resampled once for all that is said of a model.

    Args:
        rows: of all models and the baseline.
        baseline: its name.
    """

    def __init__(self, rows: Sequence[EvalRow], baseline: str) -> None:
        self.rows, self.baseline = rows, baseline
        self._known: dict[str, _DrawsByName] = {}

    def with_intervals(self) -> tuple[EvalRow, ...]:
        """Rows with the intervals of their ratios to the baseline's scores."""

        def spans(row: EvalRow) -> list[Interval | None]:
            draws = {} if row.model == self.baseline else self._draws(row.model)
            pair = draws.get(row.key, (None, None))
            return [None if one is None else interval([one]) for one in pair]

        rows = self.rows
        return tuple(replace(row, MASE_interval=mase, WQL_interval=wql) for row in rows for mase, wql in [spans(row)])

    def summaries(self, models: Sequence[str], margin: float = MARGIN) -> tuple[EvalSummary, ...]:
        """Relative scores of each model, per benchmark and (where there are several) over all data sets."""
        benchmarks = list(dict.fromkeys(row.benchmark for row in self.rows))
        groups = [(name, [row for row in self.rows if row.benchmark == name]) for name in benchmarks]
        if len(benchmarks) > 1:
            groups.append((ALL, list(self.rows)))
        return tuple(
            _summary(group, model, self.baseline, name, self._draws(model), margin)
            for model in models
            for name, group in groups
        )

    def _draws(self, model: str) -> _DrawsByName:
        """Resampled ratios of MASE and of WQL by data set."""
        if model not in self._known:
            ours, theirs = _by_data_set(self.rows, model), _by_data_set(self.rows, self.baseline)
            found = {}
            for name in ours.keys() & theirs.keys():
                first, second = ours[name].sums, theirs[name].sums
                if first is not None and second is not None:
                    found[name] = drawn(first, second, name)
            self._known[model] = found
        return self._known[model]


def drawn(model: Sums, baseline: Sums, name: str) -> tuple[Draws | None, Draws | None]:
    """Resample a data set, counting as series to draw from only those that move its ratios.

    A series without an error of either model, such as a constant one, or without a value to score, is not evidence;
    what is below `_ROUNDING` of the largest error is none.
    """
    errors = (model[:, column] + baseline[:, column] for column in (0, 2))
    loss, scaled = (one > _ROUNDING * one.max(initial=0) for one in errors)
    pairs = zip(resample(model, baseline, name), (scaled, loss), strict=True)
    mase, wql = (None if draws is None else replace(draws, series=int(there.sum())) for draws, there in pairs)
    return mase, wql


def summarise(
    rows: Sequence[EvalRow], models: Sequence[str], baseline: str, margin: float = MARGIN
) -> tuple[EvalSummary, ...]:
    """Relative scores of each model: see `Comparison.summaries`."""
    return Comparison(rows, baseline).summaries(models, margin)


def _by_data_set(rows: Sequence[EvalRow], model: str) -> dict[str, EvalRow]:
    return {row.key: row for row in rows if row.model == model}


def _summary(
    rows: Sequence[EvalRow],
    model: str,
    baseline: str,
    benchmark: str,
    draws: _DrawsByName,
    margin: float,
) -> EvalSummary:
    ours, theirs = _by_data_set(rows, model), _by_data_set(rows, baseline)
    values, intervals, verdicts, skills, wins = [], [], [], [], []
    left_out: list[str] = []
    sources = {name: row.source or name for name, row in ours.items()}
    for position, metric in enumerate(("MASE", "WQL")):
        scores, base = ({name: getattr(row, metric) for name, row in of.items()} for of in (ours, theirs))
        relative, ratios = relative_scores(scores, base), usable_ratios(scores, base)
        known = {name: pair[position] for name, pair in draws.items() if name in ratios}
        usable = [one for name in ratios if (one := known.get(name)) is not None]
        values.append(relative)
        # One of fewer data sets than the mean's would not be that mean's interval.
        whole = len(usable) == relative.datasets
        intervals.append(interval(usable, [sources[name] for name in ratios]) if whole else None)
        skills.append(skill(ratios.values()))
        wins.append(win_rate(ratios.values()))
        verdict = judge(known, ratios, margin, sources)
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
        *skills,
        *wins,
    )
