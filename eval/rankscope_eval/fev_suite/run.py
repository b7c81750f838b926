"""Run models on fev tasks."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankscope.engine import Progress, silent
from rankscope.errors import DataError, OptionError
from rankscope_eval.baselines import BASELINE
from rankscope_eval.evaluation import kept_rows
from rankscope_eval.fev_suite.models import FevForecaster, open_fev_forecaster
from rankscope_eval.fev_suite.report import FevReport, Summary, comparable, compare, rank_models
from rankscope_eval.fev_suite.tasks import MIRROR, load_data, mirrored, read_tasks, told
from rankscope_eval.forecasters import Forecasting
from rankscope_eval.kept import reused, row_key, states
from rankscope_eval.verdict import MARGIN, check_margin

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
    if isinstance(models, str) or not models:
        raise OptionError("models is empty; give at least one, such as 'seasonal-naive' or a checkpoint.")
    if resume and kept is None:
        raise OptionError("resume requires kept, the folder of finished rows.")
    if data is not None and not Path(data).is_dir():
        raise DataError(f"data folder {data} does not exist.")
    check_margin(margin)
    report, begun, how = progress or silent, time.perf_counter(), how or Forecasting()
    chosen = read_tasks(suite, data, tasks)
    base = baseline or BASELINE
    names = list(dict.fromkeys([*models, base]))
    opened = [open_fev_forecaster(one, how if one in models else replace(how, revision=None)) for one in names]
    store = None if kept is None else kept_rows(kept)
    rows: list[Mapping[str, Any]] = []
    notes: dict[str, None] = {}
    with (
        mirrored(data),
        contextlib.nullcontext() if store is None else store.open(resume=resume, force=not resume),
    ):
        for number, task in enumerate(chosen):
            load_data(task)
            data_set = [task._dataset_fingerprint, states(_data_files(task))]
            notes.update(dict.fromkeys(_left_out(task)))
            for place, forecaster in enumerate(opened):
                report(number * len(opened) + place, len(chosen) * len(opened), f"{task.task_name}: {forecaster.name}")
                settings = vars(how), task.to_dict(), data_set, version("fev")
                key = row_key("fev", forecaster.name, forecaster.files, *settings)
                kept_row = reused(store, key, KeptSummary, partial(_row, forecaster, task, how))
                rows.append(kept_row.summary)
            task._full_dataset = None  # one data set at a time in memory
    report(len(chosen) * len(opened), len(chosen) * len(opened), "done")
    metrics = {_metric(task) for task in chosen}
    return FevReport(
        suite=str(suite),
        baseline=base,
        metric=metrics.pop() if len(metrics) == 1 else "each task's own",
        seed=how.seed,
        seconds=time.perf_counter() - begun,
        rows=tuple(rows),
        leaderboard=rank_models(rows, base),
        pairs=compare(rows, base, margin),
        notes=(*_unused(opened, chosen), *notes, *(_incomparable(rows, base))),
    )


@dataclass(frozen=True)
class KeptSummary:
    """Summary of a model and task; its numbers apart, since JSON has no NaN in a mapping of anything."""

    fields: dict[str, Any]
    numbers: dict[str, float]

    @classmethod
    def of(cls, summary: Summary) -> KeptSummary:
        """Keep a summary."""
        numbers = {name: value for name, value in summary.items() if isinstance(value, float)}
        return cls({name: None if name in numbers else value for name, value in summary.items()}, numbers)

    @property
    def summary(self) -> dict[str, Any]:
        """The summary as fev gave it."""
        return {**self.fields, **self.numbers}


def _row(forecaster: FevForecaster, task: Task, how: Forecasting) -> KeptSummary:
    """Summary of a model on a task."""
    predictions, seconds = forecaster(task, how.seed)
    with told(f"{forecaster.name} on fev task {task.task_name}"):
        return KeptSummary.of(
            task.evaluation_summary(
                predictions, model_name=forecaster.name, training_time_s=0.0, inference_time_s=seconds
            )
        )


def _data_files(task: Task) -> list[Path]:
    """Local files of a task's data set; none where it is on the hub."""
    mirror = os.environ.get(MIRROR)
    if task.dataset_config is None:
        path = Path(task.dataset_path)
        return sorted(path.parent.glob(path.name))
    return [] if mirror is None else sorted((Path(mirror) / task.dataset_config).glob("*.parquet"))


def _metric(task: Task) -> str:
    metric = task.eval_metric
    return metric if isinstance(metric, str) else str(metric["name"])


def _unused(opened: Sequence[FevForecaster], tasks: Sequence[Task]) -> Iterator[str]:
    """Name the checkpoints that ignore covariates which tasks have."""
    having = sum(bool(task.dynamic_columns) for task in tasks)
    names = [one.name for one in opened if one.files and not one.covariates]
    if having and names:
        yield f"covariates, which {having} of {len(tasks)} tasks have, are not read by {', '.join(names)}."


def _incomparable(rows: Sequence[Summary], baseline: str) -> Iterator[str]:
    """Name the tasks that no comparison counts."""
    _, names = comparable(rows, baseline)
    if names:
        yield f"not compared, since an error is not finite or the baseline's is zero: {', '.join(names)}."


def _left_out(task: Task) -> Iterator[str]:
    """Say how many series fev leaves out of a task, since they are shorter than a window needs."""
    whole = task.load_full_dataset()
    with told(f"fev task {task.task_name}"):
        for number, window in enumerate(task.iter_windows(num_proc=1), 1):
            past, _ = window.get_input_data()
            if len(past) < len(whole):
                missing = min(set(whole[task.id_column]) - set(past[task.id_column]))
                yield (
                    f"{task.task_name}: {len(whole) - len(past)} of {len(whole)} series are too short for window "
                    f"{number} and left out, {missing} first."
                )
                return
