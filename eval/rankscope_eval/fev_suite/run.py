"""Run models on fev tasks."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankscope import __version__
from rankscope.engine import Progress, silent
from rankscope.errors import DataError, OptionError
from rankscope.io.run_store import RunStore
from rankscope_eval.baselines import BASELINE
from rankscope_eval.fev_suite.models import FevForecaster, open_fev_forecaster
from rankscope_eval.fev_suite.report import FevReport, compare, rank_models
from rankscope_eval.fev_suite.tasks import load_data, mirrored, read_tasks, reason_of
from rankscope_eval.forecasters import Forecasting
from rankscope_eval.verdict import MARGIN, check_margin

if TYPE_CHECKING:
    from fev import Task

ROWS_SCHEMA = "rankscope/fev-rows@1"


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
    store = None if kept is None else kept_summaries(kept)
    rows: list[Mapping[str, Any]] = []
    notes: dict[str, None] = {}
    with (
        mirrored(data),
        contextlib.nullcontext() if store is None else store.open(resume=resume, force=not resume),
    ):
        for number, task in enumerate(chosen):
            load_data(task)
            notes.update(dict.fromkeys(_left_out(task)))
            for place, forecaster in enumerate(opened):
                report(number * len(opened) + place, len(chosen) * len(opened), f"{task.task_name}: {forecaster.name}")
                rows.append(_row(forecaster, task, how, store))
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
        notes=(*_unused(opened, chosen), *notes),
    )


@dataclass(frozen=True)
class KeptSummary:
    """Summary of a model and task."""

    summary: dict[str, Any]


def kept_summaries(folder: str | Path) -> RunStore:
    """Open the store of finished rows in a folder."""
    return RunStore(folder, "rows of an unfinished evaluation", ROWS_SCHEMA, {}, items="rows")


def _row(forecaster: FevForecaster, task: Task, how: Forecasting, store: RunStore | None) -> Mapping[str, Any]:
    """Summary of a model on a task, stored or new."""
    key = _key(forecaster, task, how)
    earlier = None if store is None else store.get(key, KeptSummary)
    if earlier is not None:
        return earlier.summary
    predictions, seconds = forecaster(task, how.seed)
    try:
        found = task.evaluation_summary(
            predictions, model_name=forecaster.name, training_time_s=0.0, inference_time_s=seconds
        )
    except ValueError as error:
        raise DataError(f"{forecaster.name} on fev task {task.task_name}: {reason_of(error)}") from error
    if store is not None:
        store.put(key, KeptSummary(found))
    return found


def _key(forecaster: FevForecaster, task: Task, how: Forecasting) -> str:
    """Hash of what determines a row: settings, task and data, model and its files by size and time."""
    states = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in forecaster.files]
    parts = [__version__, vars(how), task.to_dict(), task._dataset_fingerprint, forecaster.name, states]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _metric(task: Task) -> str:
    metric = task.eval_metric
    return metric if isinstance(metric, str) else str(metric["name"])


def _unused(opened: Sequence[FevForecaster], tasks: Sequence[Task]) -> Iterator[str]:
    """Name the checkpoints that ignore covariates which tasks have."""
    having = sum(bool(task.dynamic_columns) for task in tasks)
    names = [one.name for one in opened if one.files and not one.covariates]
    if having and names:
        yield f"covariates, which {having} of {len(tasks)} tasks have, are not read by {', '.join(names)}."


def _left_out(task: Task) -> Iterator[str]:
    """Say how many series fev leaves out of a task, since they are shorter than a window needs."""
    whole = task.load_full_dataset()
    for number, window in enumerate(task.iter_windows(num_proc=1), 1):
        try:
            past, _ = window.get_input_data()
        except ValueError as error:
            raise DataError(f"fev task {task.task_name}, window {number}: {reason_of(error)}") from error
        if len(past) < len(whole):
            missing = next(iter(sorted(set(whole[task.id_column]) - set(past[task.id_column]))))
            yield (
                f"{task.task_name}: {len(whole) - len(past)} of {len(whole)} series are too short for window {number} "
                f"and left out, {missing} first."
            )
            return
