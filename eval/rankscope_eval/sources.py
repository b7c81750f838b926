"""Load the series of a suite: from files, embedded data sets, the data folder, or the Hugging Face hub."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.errors import DataError, OptionError, check_count, unknown_choice
from rankscope.series import Columns, Series, read_series
from rankscope.series.files import ENDINGS
from rankscope.series.frequency import infer_freq, period
from rankscope.series.record import check_series
from rankscope_eval.embedded import EMBEDDED, embedded_series
from rankscope_eval.metrics import Windows
from rankscope_eval.suites import DEFAULT_SUITE, Suite, Task, load_suite

SCRIPTED = "autogluon/chronos_datasets_extra"
"""Hub repository with a loading script; scripts are never executed."""


@dataclass(frozen=True)
class LoadedSuite:
    """Suite with its series; each source is read once.

    Attributes:
        suite: tasks.
        folder: folder with data files.
        max_series: maximum series per data set, the first ones; None for all.
        held: source → its number of series and the selected ones; shared by tasks with the same source.
        cut: test windows of the last task.
    """

    suite: Suite
    folder: Path | None = None
    max_series: int | None = None
    held: dict[Task, tuple[int, list[Series]]] = field(default_factory=dict, repr=False, compare=False)
    cut: dict[Task, Windows] = field(default_factory=dict, repr=False, compare=False)

    def files(self, task: Task) -> tuple[Path, ...]:
        """Return the local files of a task; empty if it is embedded or on the hub.

        Raises:
            DataError: files are missing and there is no other source.
        """
        if task.embedded is not None:
            if task.embedded not in EMBEDDED:
                raise DataError(f"task {task.name!r}: {unknown_choice('embedded data set', task.embedded, EMBEDDED)}")
            return ()
        if task.file:
            paths = tuple((self.folder or Path()) / name for name in task.file)
            missing = [path for path in paths if not path.is_file()]
            if missing and task.hf_repo is None:
                raise DataError(f"task {task.name!r}: {missing[0].name} is missing in data folder {missing[0].parent}.")
            return () if missing else paths
        if self.folder is not None:
            for ending in ENDINGS:
                if (self.folder / f"{task.name}{ending}").is_file():
                    return (self.folder / f"{task.name}{ending}",)
            if found := sorted((self.folder / task.name).glob("*.csv")):
                return tuple(found)
        if task.hf_repo is None:
            where = f"data folder {self.folder}" if self.folder is not None else "no data folder (give --data)"
            raise DataError(f"task {task.name!r} states no file, and {where} has none of its name.")
        return ()

    def series(self, task: Task) -> list[Series]:
        """Return the series of a task, in source order.

        Raises:
            DataError: the series are unavailable or do not fit the task.
        """
        where = f"task {task.name!r}"
        named = "" if (task.file or task.embedded) and task.hf_repo is None else task.name
        source = replace(
            task, name=named, benchmark="", season_length=None, num_series=None, source=None, **_ANY_WINDOW
        )
        if source not in self.held:
            paths = self.files(task)
            in_folder = bool(paths) and not task.file and paths[0].parent == (self.folder or Path()) / task.name
            found = _read(task, paths, in_folder)
            check_series(found, where)
            self.held[source] = len(found), found[: self.max_series]
        count, series = self.held[source]
        if task.num_series is not None and count != task.num_series:
            raise DataError(f"{where} holds {count} series where the suite says num_series: {task.num_series}.")
        short = [one for one in series if len(one) < 1 - task.offset]
        if short:
            raise DataError(
                f"{where}: series {short[0].item_id!r} has {len(short[0])} values, but {_needed(task)} at least "
                f"{1 - task.offset} ({len(short)} of {len(series)} series are too short)."
            )
        return series

    def windows(self, task: Task) -> Windows:
        """Return the test windows of a task, cut once for all models that are scored on it one after the other.

        Raises:
            DataError: the series are unavailable or do not fit the task.
        """
        if task not in self.cut:
            self.cut.clear()
            self.cut[task] = Windows(task, self.series(task))
        return self.cut[task]

    def contents(self) -> str:
        """Hash of all series.

        Raises:
            DataError: the series are unavailable or do not fit their tasks.
        """
        digest = hashlib.sha256()
        for one in (one for task in self.suite.tasks for one in self.series(task)):
            digest.update(repr((one.item_id, str(one.start))).encode("utf-8", "surrogatepass"))
            digest.update(one.target.tobytes())
        return digest.hexdigest()[:16]


def _needed(task: Task) -> str:
    """Windows that follow one another to the end of the series by their number, others by the offset."""
    if -task.offset != task.num_rolls * task.prediction_length:
        return f"offset {task.offset} needs"
    words = f"of {task.prediction_length} steps"
    return f"1 window {words} needs" if task.num_rolls == 1 else f"{task.num_rolls} windows {words} need"


_ANY_WINDOW: dict[str, Any] = {"prediction_length": 1, "offset": -1, "num_rolls": 1}


def read_suite(
    suite: str | Path | Suite = DEFAULT_SUITE,
    data: str | Path | None = None,
    *,
    tasks: Sequence[str] | None = None,
    max_series: int | None = None,
) -> LoadedSuite:
    """Load a suite and all its local data sets, so that errors are found before the first forecast.

    Embedded and hub data sets are loaded lazily; loaded series stay in memory.

    Args:
        suite: shipped suite, YAML file, or a loaded suite.
        data: folder with local data files (default: the YAML file's folder).
        tasks: names of the tasks to keep (default: all).
        max_series: use only the first series of each data set (published protocol: all).

    Raises:
        RankscopeError: invalid suite or option, a task without a source, or a local data set that does not fit its
            task.
    """
    if max_series is not None:
        check_count("max_series", max_series)
    chosen = (suite if isinstance(suite, Suite) else load_suite(suite)).select(tasks)
    if data is not None and not Path(data).is_dir():
        raise DataError(f"data folder {data} does not exist.")
    if data is not None and all(task.embedded for task in chosen.tasks):
        raise OptionError(f"data folder {data} is not used: suite {chosen.name!r} has its data; leave it out.")
    loaded = LoadedSuite(chosen, chosen.folder if data is None else Path(data), max_series)
    local = [task for task in chosen.tasks if loaded.files(task)]
    for task in local:
        loaded.series(task)
    return loaded


def _read(task: Task, paths: tuple[Path, ...], in_folder: bool) -> list[Series]:
    """Read the series of a task from files, or without paths from the embedded data sets or the hub.

    A folder of the task's name holds wide CSV files, as published for ETT.
    """
    if task.embedded is not None:
        return embedded_series(task.embedded)
    if not paths:
        return hub_series(str(task.hf_repo), task.name)
    columns = Columns(task.id_column, task.time_column, task.target_column)
    format_ = "wide_csv" if in_folder and task.format is None else task.format
    series = []
    for path in paths:
        found = read_series(path, format=format_, freq=task.freq, columns=columns)
        # Prefix with the file name, since columns of different files may share names.
        if format_ == "wide_csv":
            found = [replace(one, item_id=f"{path.stem}_{one.item_id}") for one in found]
        series += found
    return series


def hub_series(repo: str, name: str) -> list[Series]:
    """Load data set ``name`` of a hub repository; each list column gives one univariate series per row.

    Values are rounded to single precision, as for the published scores.

    Raises:
        DataError: the package ``datasets``, the network or the data set is not available.
    """
    if repo == SCRIPTED:
        raise DataError(
            f"{repo} generates {name!r} with a script, which is not run here: put the CSV files of "
            f"github.com/zhouhaoyi/ETDataset into DATA/{name}/ and give --data DATA."
        )
    try:
        import datasets
    except ImportError as error:
        raise DataError(
            f"data set {name!r} comes from {repo} through the package `datasets`, which is not installed: "
            f"pip install 'rankscope[hub]', or put {name}.parquet into a folder and give --data."
        ) from error
    try:
        table = datasets.load_dataset(repo, name, split="train").with_format("numpy")
    except Exception as error:  # hub, network, cache and parser raise different errors
        reason = (str(error).strip().splitlines() or [""])[0]
        raise DataError(
            f"data set {name!r} cannot be loaded from {repo} ({type(error).__name__}: {reason[:160]}): "
            f"check the network, or put {name}.parquet into a folder and give --data."
        ) from error
    return table_to_series(table, f"{repo}/{name}")


def table_to_series(table: Any, where: str) -> list[Series]:
    """Convert a numpy-formatted ``datasets.Dataset`` with a ``timestamp`` list column to series.

    Raises:
        DataError: no timestamp column, no numeric list column, or the frequency cannot be inferred.
    """
    import pandas as pd

    columns = list(table.features)
    if "timestamp" not in columns or len(table) == 0:
        raise DataError(f"{where} has no rows with a timestamp column; its columns are {', '.join(columns)}.")
    first = table[0]
    fields = [c for c in columns if c != "timestamp" and _is_numbers(first[c])]
    if not fields:
        raise DataError(f"{where} has no list column of numbers; its columns are {', '.join(columns)}.")
    freq = infer_freq(pd.DatetimeIndex(first["timestamp"]))  # one frequency per data set, as in the published protocol
    if freq is None:
        raise DataError(f"{where}: the frequency cannot be told from the timestamps of its first row.")
    series = []
    for number, row in enumerate(table):
        base = str(row["id"]) if "id" in row else f"T{number}"
        start = period(row["timestamp"][0], freq, where)
        for name in fields:
            item_id = base if len(fields) == 1 else f"{base}_{name}"
            series.append(Series(item_id, start, np.asarray(row[name], dtype=np.float32)))
    return series


def _is_numbers(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "fiu"
