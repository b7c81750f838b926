"""Models × tasks → scores, by the protocol of chronos-forecasting's own evaluation."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rankscope.engine.progress import Progress, silent
from rankscope.errors import DataError, OptionError
from rankscope_eval.forecasters import Forecaster, open_forecaster, quiet_imports
from rankscope_eval.kept_rows import KeptRows
from rankscope_eval.metrics import score
from rankscope_eval.report import EvalReport, EvalRow, Skipped, summarise
from rankscope_eval.series import Series, seasonality
from rankscope_eval.sources import check_local, data_folder, task_files, task_series
from rankscope_eval.suites import DEFAULT_SUITE, Suite, Task, load_suite

BASELINE = "seasonal-naive"


def evaluate(
    models: Sequence[str | Forecaster],
    *,
    suite: str | Path | Suite = DEFAULT_SUITE,
    data: str | Path | None = None,
    baseline: str | Forecaster | None = None,
    num_samples: int = 20,
    batch_size: int = 32,
    seed: int = 0,
    device: str = "cpu",
    dtype: Any = None,
    runtime: str = "auto",
    tasks: Sequence[str] | None = None,
    max_series: int | None = None,
    kept: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> EvalReport:
    """Forecast and score every task of a suite with every model.

    The protocol is that of chronos-forecasting's ``scripts/evaluation``: the last ``-offset`` values of each
    series are cut into ``num_rolls`` windows, all before a window is context, scores are MASE and WQL over
    all series, relative scores their geometric means with intervals (`rankscope_eval.intervals`). The random
    state is set to ``seed`` before each task, so rows do not depend on order or selection.

    Args:
        models: ``naive``, ``seasonal-naive``, ``auto-ets``, ``auto-theta``, or checkpoints.
        suite: a shipped suite, a YAML file, or a loaded suite.
        data: folder of local data files.
        baseline: what relative scores divide by; seasonal-naive by default. It is evaluated too.
        num_samples: sample paths of a model that draws them.
        batch_size: series per forward pass.
        seed: random seed.
        device: where checkpoints run.
        dtype: dtype of checkpoints; None keeps theirs.
        runtime: ``auto``, ``fast`` or ``stock``; see `rankscope.load_pipeline`.
        tasks: names of tasks to keep.
        max_series: how many series of each data set to keep, the first ones; all in the published protocol.
        kept: file that holds every row as soon as it is measured, to be deleted when the report is safe; None keeps
            none.
        resume: take the rows that ``kept`` holds of the same models, tasks and settings, and measure the others.
        progress: called as ``progress(done, total, what)``.

    Raises:
        RankscopeError: a model, the suite, an option or the data cannot be used.
    """
    if isinstance(models, str) or not models:
        raise OptionError("models is empty: name at least one, such as 'seasonal-naive' or a checkpoint.")
    if resume and kept is None:
        raise OptionError("resume goes on with the rows of a file: name it as kept.")
    if max_series is not None and (isinstance(max_series, bool) or max_series < 1):
        raise OptionError(f"max_series {max_series!r} is not usable: give a whole number, at least 1.")
    started = time.perf_counter()
    chosen = (suite if isinstance(suite, Suite) else load_suite(suite)).select(None if tasks is None else list(tasks))
    folder = data_folder(chosen, data)
    check_local(chosen, folder, max_series)
    quiet_imports()
    options = {
        "num_samples": num_samples,
        "batch_size": batch_size,
        "seed": seed,
        "device": device,
        "dtype": dtype,
        "runtime": runtime,
    }
    forecasters = _open_all([*models, BASELINE if baseline is None else baseline], options)
    store = None if kept is None else KeptRows(kept, {**options, "max_series": max_series}, resume)
    rows, skipped = _run(chosen, folder, forecasters, max_series, store, progress or silent)
    names = [one if isinstance(one, str) else one.name for one in models]
    reference = forecasters[-1].name if baseline is None else _name(baseline)
    published = tuple(one for one in chosen.published if one.dataset in {row.dataset for row in rows})
    return EvalReport(
        suite=chosen.name,
        baseline=reference,
        seed=seed,
        num_samples=num_samples,
        batch_size=batch_size,
        max_series=max_series,
        seconds=time.perf_counter() - started,
        rows=tuple(rows),
        summary=summarise(rows, list(dict.fromkeys(names)), reference),
        published=published,
        skipped=tuple(skipped),
    )


def split_windows(series: Sequence[Series], task: Task) -> Any:
    """Windows of a task as GluonTS test data: ``input`` (contexts) and ``label`` (the values to forecast)."""
    from gluonts.dataset.split import split

    _, template = split([one.entry for one in series], offset=task.offset)
    return template.generate_instances(task.prediction_length, windows=task.num_rolls)


def evaluate_task(forecaster: Forecaster, task: Task, series: Sequence[Series]) -> EvalRow:
    """Scores of one model on the series of one task."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # pandas on business-day periods, which the data have
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
        sums=None if scores.sums is None else scores.sums.reshape(len(series), -1, 4).sum(axis=1),
    )


def _run(
    suite: Suite,
    folder: Path | None,
    forecasters: Sequence[Forecaster],
    max_series: int | None,
    store: KeptRows | None,
    progress: Progress,
) -> tuple[list[EvalRow], list[Skipped]]:
    published = {(one.dataset, one.model): one for one in suite.published}
    rows: list[EvalRow] = []
    skipped: list[Skipped] = []
    total = len(suite.tasks) * len(forecasters)
    done = 0
    for task in suite.tasks:
        progress(done, total, task.name)
        try:
            series = task_series(task, folder, max_series)
        except DataError as error:
            # Only the hub may fail half way through a suite; then the other tasks' hours are not thrown away.
            if task.hf_repo is None or task_files(task, folder):
                raise
            skipped.append(Skipped(task.benchmark, task.name, str(error)))
            done += len(forecasters)
            continue
        for forecaster in forecasters:
            progress(done, total, f"{task.name}: {forecaster.name}")
            row = _row(forecaster, task, series, folder, store)
            known = published.get((task.name, forecaster.name))
            if known is not None:
                row = replace(row, published_MASE=known.MASE, published_WQL=known.WQL)
            rows.append(row)
            done += 1
    progress(total, total, suite.name)
    if not rows:
        raise DataError(f"no task of suite {suite.name!r} could be loaded: {skipped[0].reason}")
    return rows, skipped


def _row(
    forecaster: Forecaster, task: Task, series: Sequence[Series], folder: Path | None, store: KeptRows | None
) -> EvalRow:
    """A row that is kept, or a new one."""
    key = None if store is None else store.key(task, task_files(task, folder), forecaster)
    if store is None or key is None:
        return evaluate_task(forecaster, task, series)
    row = store.get(key)
    if row is None:
        row = evaluate_task(forecaster, task, series)
        store.add(key, row)
    return row


def _open_all(models: Sequence[str | Forecaster], options: dict[str, Any]) -> list[Forecaster]:
    """Each model once, in the order given."""
    opened: dict[str, Forecaster] = {}
    for model in models:
        if _name(model) not in opened:
            opened[_name(model)] = model if isinstance(model, Forecaster) else open_forecaster(model, **options)
    return list(opened.values())


def _name(model: str | Forecaster) -> str:
    return model.name if isinstance(model, Forecaster) else str(model)
