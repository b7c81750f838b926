"""Score models on a suite with chronos-forecasting's evaluation protocol."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rankscope.engine import Progress, silent
from rankscope.engine.fan_out import fan_out
from rankscope.engine.pool import Engine, Tick, available_cores
from rankscope.errors import DataError, OptionError
from rankscope_eval.baselines import BASELINE, FALLBACK
from rankscope_eval.forecasters import (
    Forecaster,
    Forecasting,
    live_pipeline,
    open_forecaster,
    pipeline_forecaster,
    quiet_imports,
)
from rankscope_eval.metrics import Windows, by_series, score
from rankscope_eval.relative import geometric_mean, relative_scores
from rankscope_eval.report import EvalRow, Skipped
from rankscope_eval.sources import LoadedSuite, read_suite
from rankscope_eval.suites import DEFAULT_SUITE, Suite, Task

if TYPE_CHECKING:
    from rankscope.checkpoints import Checkpoint

METRICS = ("WQL", "MASE")


def score_task(forecaster: Forecaster, windows: Windows) -> EvalRow:
    """Score a model on a task, forecasts as they come."""
    task, meter = windows.task, Meter()
    try:
        forecasts = forecaster.forecast(windows.contexts, task.prediction_length, windows.seasons)
        scores = score(meter.read(forecasts), windows)
    except DataError as error:
        raise DataError(f"model {forecaster.name!r} on task {task.name!r}: {error}") from error
    return EvalRow(
        benchmark=task.benchmark,
        dataset=task.name,
        model=forecaster.name,
        MASE=scores.MASE,
        WQL=scores.WQL,
        series=len(windows.series),
        windows=len(windows.contexts),
        prediction_length=task.prediction_length,
        season_length=windows.season,
        seconds=meter.seconds,
        unscaled=scores.unscaled,
        fallbacks=meter.fallbacks,
        SQL=scores.SQL,
        WAPE=scores.WAPE,
        MSIS=scores.MSIS,
        coverage=scores.coverage,
        steps=scores.steps,
        source=task.source or task.name,
        bands=by_series(scores.sums, windows),
    )


class Meter:
    """Seconds that forecasts took, and the number of them that are fallbacks."""

    def __init__(self) -> None:
        self.seconds, self.fallbacks = 0.0, 0

    def read(self, forecasts: Iterator[Any]) -> Iterator[Any]:
        """Pass forecasts on as they come."""
        while True:
            started = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # pandas, on business-day periods
                one = next(forecasts, None)
            self.seconds += time.perf_counter() - started
            if one is None:
                return
            self.fallbacks += one.info == FALLBACK
            yield one


def score_suite(
    suite: LoadedSuite,
    forecasters: Sequence[Forecaster],
    progress: Progress = silent,
    *,
    known: Callable[[Forecaster, Task], EvalRow | None] = lambda forecaster, task: None,
    keep: Callable[[Forecaster, Task, EvalRow], None] = lambda forecaster, task, row: None,
    engine: Engine | None = None,
) -> tuple[list[EvalRow], list[Skipped]]:
    """Score models on every task of a suite.

    Args:
        suite: loaded suite.
        forecasters: models.
        progress: callback ``(rows done, rows, task and model)``.
        known: returns a row of an earlier run, or None.
        keep: stores a new row.
        engine: where rows are computed, and how many at a time (default: one after the other in this process).

    Returns:
        Rows, in the order of tasks and models, and the tasks that could not be loaded from the hub.

    Raises:
        DataError: forecasts are NaN, or no task could be loaded.
        OptionError: a model without a name that opens it is to be scored in another process.
    """
    quiet_imports()
    tasks = suite.suite.tasks
    rows: dict[tuple[int, int], EvalRow] = {}
    skipped: list[Skipped] = []
    total = len(tasks) * len(forecasters)

    def done() -> int:
        return len(rows) + len(skipped) * len(forecasters)

    def jobs() -> Iterator[Job]:
        for place, task in enumerate(tasks):
            progress(done(), total, task.name)
            try:
                suite.series(task)
            except DataError as error:
                # A hub failure must not discard the results of the other tasks.
                if task.hf_repo is None or suite.files(task):
                    raise
                skipped.append(Skipped(task.benchmark, task.name, str(error)))
                continue
            for number, forecaster in enumerate(forecasters):
                earlier = known(forecaster, task)
                if earlier is not None:
                    rows[place, number] = earlier
                    continue
                progress(done(), total, f"{task.name}: {forecaster.name}")
                yield Job((place, number), forecaster)

    where = engine or Engine(jobs=1)
    count = where.jobs if where.name == "ray" else where.jobs or available_cores()
    threads = 0 if count <= 1 else max(1, available_cores() // count)
    for (place, number), row in fan_out(partial(_score_job, suite), jobs(), where, count, threads=threads, retries=1):
        rows[place, number] = row
        keep(forecasters[number], tasks[place], row)
    progress(total, total, suite.suite.name)
    if not rows:
        raise DataError(f"no task of suite {suite.suite.name!r} could be loaded: {skipped[0].reason}")
    return [rows[at] for at in sorted(rows)], skipped


class Job(NamedTuple):
    """A row to compute: places of its task and model, and the model."""

    place: tuple[int, int]
    forecaster: Forecaster


def _score_job(suite: LoadedSuite, job: Job, tick: Tick) -> tuple[tuple[int, int], EvalRow]:
    quiet_imports()
    return job.place, score_task(job.forecaster, suite.windows(suite.suite.tasks[job.place[0]]))


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
