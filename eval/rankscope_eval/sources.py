"""Where the series of a task come from: the task's files, an embedded set, the data folder, or the hub."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rankscope.errors import DataError, unknown_choice
from rankscope_eval.embedded import EMBEDDED, embedded_series
from rankscope_eval.hub import hub_series
from rankscope_eval.layouts import Columns
from rankscope_eval.readers import ENDINGS, read_series
from rankscope_eval.series import Series, check_series
from rankscope_eval.suites import Suite, Task


def data_folder(suite: Suite, data: str | Path | None) -> Path | None:
    """The folder that files are relative to: ``data``, else the folder of the suite's YAML.

    Raises:
        DataError: ``data`` is not a folder.
    """
    if data is None:
        return suite.folder
    folder = Path(data)
    if not folder.is_dir():
        raise DataError(f"data folder {folder} does not exist.")
    return folder


def task_files(task: Task, folder: Path | None) -> tuple[Path, ...]:
    """Local files of a task; empty where it is embedded or has to come from the hub.

    Raises:
        DataError: the task has no other source and its files are missing.
    """
    if task.embedded is not None:
        if task.embedded not in EMBEDDED:
            raise DataError(f"task {task.name!r}: {unknown_choice('embedded data set', task.embedded, EMBEDDED)}")
        return ()
    if task.file:
        paths = tuple((folder or Path()) / name for name in task.file)
        missing = [path for path in paths if not path.is_file()]
        if missing and task.hf_repo is None:
            raise DataError(f"task {task.name!r}: {missing[0].name} is missing in data folder {missing[0].parent}.")
        return () if missing else paths
    if folder is not None:
        for ending in ENDINGS:
            if (folder / f"{task.name}{ending}").is_file():
                return (folder / f"{task.name}{ending}",)
        if found := sorted((folder / task.name).glob("*.csv")):
            return tuple(found)
    if task.hf_repo is None:
        where = f"data folder {folder}" if folder is not None else "no data folder (give --data)"
        raise DataError(f"task {task.name!r} states no file, and {where} has none of its name.")
    return ()


def check_local(suite: Suite, folder: Path | None, max_series: int | None = None) -> None:
    """Read every local data set once, so that a bad one is found before the first forecast and not after hours.

    Raises:
        DataError: a task has no source, or a local one cannot be evaluated as the task asks.
    """
    found = [(task, task_files(task, folder)) for task in suite.tasks]
    for task, paths in found:
        if paths:
            task_series(task, folder, max_series)


def task_series(task: Task, folder: Path | None, max_series: int | None = None) -> list[Series]:
    """Series of a task, checked, in the order of its source.

    Raises:
        DataError: the source is missing, or a series cannot be evaluated as the task asks.
    """
    paths = task_files(task, folder)
    where = f"task {task.name!r}"
    if task.embedded is not None:
        series = embedded_series(task.embedded)
    elif paths:
        series = _from_files(task, paths)
    elif task.hf_repo is not None:
        series = hub_series(task.hf_repo, task.name)
    else:  # task_files has refused this
        raise DataError(f"{where} has no source.")
    check_series(series, where)
    if task.num_series is not None and len(series) != task.num_series:
        raise DataError(f"{where} holds {len(series)} series where the suite says num_series: {task.num_series}.")
    series = series[:max_series]
    short = [one for one in series if len(one) < 1 - task.offset]
    if short:
        raise DataError(
            f"{where}: series {short[0].item_id!r} has {len(short[0])} values, but offset {task.offset} "
            "needs at least "
            f"{1 - task.offset} ({len(short)} of {len(series)} series are too short)."
        )
    return series


def _from_files(task: Task, paths: tuple[Path, ...]) -> list[Series]:
    columns = Columns(task.id_column, task.time_column, task.target_column)
    # A folder of the task's name holds wide CSVs, as the ETT files are published.
    in_folder = not task.file and paths[0].parent.name == task.name
    format_ = "wide_csv" if in_folder and task.format is None else task.format
    series = []
    for path in paths:
        found = read_series(path, format=format_, freq=task.freq, columns=columns)
        # Columns of different files may share their names, so each carries its file's.
        if format_ == "wide_csv":
            found = [replace(one, item_id=f"{path.stem}_{one.item_id}") for one in found]
        series += found
    return series
