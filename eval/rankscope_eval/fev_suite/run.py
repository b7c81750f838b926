"""Run models on fev tasks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.engine import Progress, silent
from rankscope.errors import DataError
from rankscope_eval.baselines import BASELINE
from rankscope_eval.fev_suite.models import FevForecaster, open_fev_forecaster
from rankscope_eval.fev_suite.report import FevReport, Summary, comparable, compare, metric_of, rank_models
from rankscope_eval.fev_suite.tasks import data_files, fev, load_data, mirrored, read_tasks
from rankscope_eval.forecasters import Forecasting
from rankscope_eval.kept import check_run, open_all, opened_store, reused, row_key, states
from rankscope_eval.reasons import as_data_error
from rankscope_eval.verdict import MARGIN

if TYPE_CHECKING:
    from fev import Task


def evaluate_fev(
    models: Sequence[str],
    suite: str | Path,
    how: Forecasting | None = None,
    *,
    data: str | Path | None = None,
    tasks: Sequence[str] | None = None,
    baseline: str | None = None,
    margin: float = MARGIN,
    kept: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> FevReport:
    """Evaluate models on fev tasks.

    Args:
        models: ``naive``, ``seasonal-naive``, ``auto-ets``, ``auto-theta`` (statsforecast's, with its intervals), or
            checkpoints.
        suite: ``fev-bench``, ``fev-mini``, ``chronos-zero-shot``, or a YAML file in fev's form.
        how: forecasting settings.
        data: folder of data sets in the place of the hub: ``DATA/CONFIG/*.parquet``.
        tasks: names of the tasks to run (default: all).
        baseline: model of the comparisons, also evaluated (default: seasonal-naive).
        margin: relative difference that verdicts count as none (`rankscope_eval.verdict`).
        kept: folder to store finished rows in until the report is written; None stores none.
        resume: reuse rows in ``kept`` with the same models, tasks and settings.
        progress: called as ``progress(done, total, what)``.

    Raises:
        RankscopeError: invalid model, task, option or data; fev is not installed.
    """
    check_run(models, kept, resume, margin)
    if data is not None and not Path(data).is_dir():
        raise DataError(f"data folder {data} does not exist.")
    report, begun, how = progress or silent, time.perf_counter(), how or Forecasting()
    chosen = read_tasks(suite, data, tasks)
    base = baseline or BASELINE
    opened = open_all(models, base, how, open_fev_forecaster)
    rows: list[Summary] = []
    short: list[str] = []
    total = len(chosen) * len(opened)
    with mirrored(data), opened_store(kept, resume) as store:
        for task in chosen:
            load_data(task)
            data_set = [task._dataset_fingerprint, states(data_files(task))]
            for forecaster in opened:
                report(len(rows), total, f"{task.task_name}: {forecaster.name}")
                settings = vars(how), task.to_dict(), data_set, version("fev")
                key = row_key("fev", forecaster.name, forecaster.files, *settings)
                make = partial(_measured, forecaster, task, how)
                row = reused(store, key, Measured, make, partial(_fits, task))
                rows.append(row.summary(forecaster.name, task))
            short += _left_out(task, rows[-1]["num_forecasts"])
            task._full_dataset = None  # one data set at a time in memory
    report(total, total, "done")
    metrics = {metric_of(row) for row in rows}
    _, uncompared = comparable(rows, base)
    return FevReport(
        suite=str(suite),
        baseline=base,
        metric=metrics.pop() if len(metrics) == 1 else "each task's own",
        seed=how.seed,
        seconds=time.perf_counter() - begun,
        rows=tuple(rows),
        leaderboard=rank_models(rows, base),
        pairs=compare(rows, base, margin),
        notes=(*_unused(opened, chosen), *short, *_uncompared(uncompared)),
    )


@dataclass(frozen=True)
class Measured:
    """Measurements of a model on a task; the other fields of fev's summary are the task's.

    Attributes:
        test_error: of the task's own metric.
        inference_time_s: seconds of all forecasts.
        num_forecasts: forecasts of all windows.
        metrics: all metrics of the task by name.
    """

    test_error: float
    inference_time_s: float
    num_forecasts: int
    metrics: dict[str, float]

    def summary(self, model: str, task: Task) -> Summary:
        """Fev's summary, in its order."""
        return {
            "model_name": model,
            **task.to_dict(),
            "test_error": self.test_error,
            "training_time_s": 0.0,
            "inference_time_s": self.inference_time_s,
            "num_forecasts": self.num_forecasts,
            "dataset_fingerprint": task._dataset_fingerprint,
            "trained_on_this_dataset": False,
            "fev_version": version("fev"),
            **self.metrics,
        }


def _measured(forecaster: FevForecaster, task: Task, how: Forecasting) -> Measured:
    """Let a model forecast a task, and fev score it."""
    predictions, seconds = forecaster(task, how.seed)
    with as_data_error(f"{forecaster.name} on fev task {task.task_name}"):
        found = task.evaluation_summary(predictions, model_name=forecaster.name)
    metrics = {name: found[name] for name in _metrics(task)}
    return Measured(found["test_error"], seconds, found["num_forecasts"], metrics)


def _fits(task: Task, row: Measured) -> bool:
    """True if a row has the metrics of a task."""
    return row.metrics.keys() == set(_metrics(task))


def _metrics(task: Task) -> list[str]:
    """Names of a task's metrics."""
    return [fev().metrics.get_metric(one).name for one in (task.eval_metric, *task.extra_metrics)]


def _unused(opened: Sequence[FevForecaster], tasks: Sequence[Task]) -> Iterator[str]:
    """Name the checkpoints that ignore covariates which tasks have."""
    having = sum(bool(task.dynamic_columns) for task in tasks)
    names = [one.name for one in opened if one.files and not one.covariates]
    if having and names:
        yield f"covariates, which {having} of {len(tasks)} tasks have, are not read by {', '.join(names)}."


def _uncompared(names: Sequence[str]) -> Iterator[str]:
    """Name the tasks that no comparison counts."""
    if names:
        yield f"not compared, since an error is not finite or the baseline's is zero: {', '.join(names)}."


def _left_out(task: Task, forecasts: int) -> Iterator[str]:
    """Say how many series fev leaves out of a task, since they are shorter than a window needs.

    Args:
        task: the task.
        forecasts: number of forecasts that were made of it, by which fev's splits need not be made once more.
    """
    whole = task.load_full_dataset()
    if forecasts == len(whole) * len(task.target_columns) * task.num_windows:
        return
    for number, window in enumerate(task.iter_windows(num_proc=1), 1):
        past, _ = window.get_input_data()
        if len(past) < len(whole):
            missing = min(set(whole[task.id_column]) - set(past[task.id_column]))
            yield (
                f"{task.task_name}: {len(whole) - len(past)} of {len(whole)} series are too short for window "
                f"{number} and left out, {missing} first."
            )
            return
