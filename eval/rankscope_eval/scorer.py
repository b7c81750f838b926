"""Score models on a suite with chronos-forecasting's evaluation protocol."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankscope.engine import Progress, silent
from rankscope.errors import DataError, OptionError
from rankscope.series import Series
from rankscope.series.frequency import seasonality
from rankscope_eval.baselines import BASELINE
from rankscope_eval.forecasters import (
    Forecaster,
    Forecasting,
    live_pipeline,
    open_forecaster,
    pipeline_forecaster,
    quiet_imports,
)
from rankscope_eval.metrics import score
from rankscope_eval.relative import geometric_mean, relative_scores
from rankscope_eval.report import EvalRow, Skipped
from rankscope_eval.sources import LoadedSuite, read_suite
from rankscope_eval.suites import DEFAULT_SUITE, Suite, Task

if TYPE_CHECKING:
    from rankscope.checkpoints import Checkpoint

METRICS = ("WQL", "MASE")
Row = Callable[[Forecaster, Task, Sequence[Series]], EvalRow]


def split_windows(series: Sequence[Series], task: Task) -> Any:
    """Split series into GluonTS test windows: ``input`` (contexts) and ``label`` (targets)."""
    from gluonts.dataset.split import split

    _, template = split([one.entry for one in series], offset=task.offset)
    return template.generate_instances(task.prediction_length, windows=task.num_rolls)


def score_task(forecaster: Forecaster, task: Task, series: Sequence[Series]) -> EvalRow:
    """Score a model on the series of a task."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # pandas, on business-day periods
        test_data = split_windows(series, task)
        entries = list(test_data.input)
        season = task.season_length or seasonality(series[0].start.freqstr)
        started = time.perf_counter()
        forecasts, fallbacks = forecaster.forecast(entries, task.prediction_length, season)
        seconds = time.perf_counter() - started
    try:
        scores = score(forecasts, test_data, task.season_length)
    except DataError as error:
        raise DataError(f"model {forecaster.name!r} on task {task.name!r}: {error}") from error
    return EvalRow(
        benchmark=task.benchmark,
        dataset=task.name,
        model=forecaster.name,
        MASE=scores.MASE,
        WQL=scores.WQL,
        series=len(series),
        windows=len(entries),
        prediction_length=task.prediction_length,
        season_length=season,
        seconds=seconds,
        unscaled=scores.unscaled,
        fallbacks=fallbacks,
        sums=np.concatenate(scores.windows).reshape(len(series), -1, 4).sum(axis=1),
    )


def score_suite(
    suite: LoadedSuite, forecasters: Sequence[Forecaster], progress: Progress = silent, row: Row = score_task
) -> tuple[list[EvalRow], list[Skipped]]:
    """Score models on every task of a suite.

    Args:
        suite: loaded suite.
        forecasters: models.
        progress: callback ``(rows done, rows, task and model)``.
        row: returns the row of a model and a task; defaults to `score_task`.

    Returns:
        Rows, and the tasks that could not be loaded from the hub.

    Raises:
        DataError: forecasts are NaN, or no task could be loaded.
    """
    quiet_imports()
    tasks = suite.suite.tasks
    rows: list[EvalRow] = []
    skipped: list[Skipped] = []
    total, done = len(tasks) * len(forecasters), 0
    for task in tasks:
        progress(done, total, task.name)
        try:
            series = suite.series(task)
        except DataError as error:
            # A hub failure must not discard the results of the other tasks.
            if task.hf_repo is None or suite.files(task):
                raise
            skipped.append(Skipped(task.benchmark, task.name, str(error)))
            done += len(forecasters)
            continue
        for forecaster in forecasters:
            progress(done, total, f"{task.name}: {forecaster.name}")
            rows.append(row(forecaster, task, series))
            done += 1
    progress(total, total, suite.suite.name)
    if not rows:
        raise DataError(f"no task of suite {suite.suite.name!r} could be loaded: {skipped[0].reason}")
    return rows, skipped


class Scorer:
    """Scorer of models on a suite, relative to a baseline that is scored once.

    Picklable if the baseline is given by name; the pickle includes the series and the baseline's rows, so other
    processes do not compute them again.

    Args:
        suite: loaded suite.
        how: forecasting settings.
        baseline: denominator of relative scores (default: seasonal-naive).
    """

    def __init__(
        self, suite: LoadedSuite, how: Forecasting | None = None, baseline: str | Checkpoint | Forecaster = BASELINE
    ) -> None:
        self.suite, self.how, self.baseline = suite, how or Forecasting(), baseline

    def rows(self, model: str | Checkpoint | Forecaster, progress: Progress = silent) -> list[EvalRow]:
        """Score a model on every task."""
        forecaster = model if isinstance(model, Forecaster) else open_forecaster(model, self.how)
        return score_suite(self.suite, [forecaster], progress)[0]

    @cached_property
    def reference(self) -> list[EvalRow]:
        """Return the rows of the baseline."""
        return self.rows(self.baseline)

    def score_baseline(self, progress: Progress = silent) -> None:
        """Score the baseline now, and not when it is first needed."""
        self.reference = self.rows(self.baseline, progress)

    def __call__(self, model: Path | str | Checkpoint | Forecaster) -> dict[str, float]:
        """Score a model.

        Returns:
            ``WQL`` and ``MASE``: geometric means over the tasks; ``relative_WQL`` and ``relative_MASE``: those of the
            score over the baseline's; ``forecast_seconds``: wall time of the forecasts.
        """
        return self.means(self.rows(str(model) if isinstance(model, Path) else model))

    def means(self, rows: list[EvalRow]) -> dict[str, float]:
        """Sum up the rows of a model as a call does."""
        found = {name: geometric_mean(value for row in rows if (value := getattr(row, name)) > 0) for name in METRICS}
        for name in METRICS:
            ours, theirs = ({row.key: getattr(row, name) for row in of} for of in (rows, self.reference))
            found[f"relative_{name}"] = relative_scores(ours, theirs).value
        return {**found, "forecast_seconds": sum(row.seconds for row in rows)}

    def by_task(self, rows: list[EvalRow]) -> dict[str, float]:
        """WQL of every task over the baseline's, by the name of the task."""
        found = {}
        for ours, theirs in zip(rows, self.reference, strict=True):
            found[ours.dataset] = relative_scores({ours.key: ours.WQL}, {theirs.key: theirs.WQL}).value
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "reference": self.reference}


def score_during_training(
    suite: str | Path | Suite = DEFAULT_SUITE,
    series: int = 0,
    data: str | Path | None = None,
    how: Forecasting | None = None,
) -> Callable[[Any], dict[str, float]]:
    """Make what ``rankscope.train.pretrain`` takes as ``validate``.

    The data are read, and the seasonal-naive forecasts made, at once: what cannot be used is refused before the
    training begins.

    Args:
        suite: a shipped suite, a YAML file, or one at hand.
        series: at most this many series of each task, the first ones; 0 for all.
        data: folder of local data files.
        how: the model in training forecasts.

    Returns:
        A function from a Chronos-T5 or Chronos-Bolt module in evaluation mode to the scores of `Scorer`, without times,
        and every task's relative WQL as ``relative_WQL TASK``. Where forecasts are NaN, so are the scores.

    Raises:
        RankscopeError: the suite, an option or the data cannot be used.
    """
    if series < 0:
        raise OptionError(f"series is {series}: give at least 1, or 0 for all.")
    scorer = Scorer(read_suite(suite, data, max_series=series or None), how)
    for task in scorer.suite.suite.tasks:
        scorer.suite.series(task)
    scorer.score_baseline()
    names = [*METRICS, *(f"relative_{name}" for name in METRICS)]
    tasks = [row.dataset for row in scorer.reference]

    def scores(network: Any) -> dict[str, float]:
        try:
            rows = scorer.rows(pipeline_forecaster("in training", live_pipeline(network), scorer.how))
        except DataError:  # the series were good enough for seasonal-naive: the forecasts are NaN
            return dict.fromkeys([*names, *(f"relative_WQL {task}" for task in tasks)], math.nan)
        means, single = scorer.means(rows), scorer.by_task(rows)
        return {**{name: means[name] for name in names}, **{f"relative_WQL {task}": single[task] for task in tasks}}

    return scores
