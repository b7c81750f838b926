"""The series of a suite: from the tasks' files, an embedded set, the data folder, or the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.errors import DataError, OptionError, unknown_choice
from rankscope.series import Columns, Series, read_series
from rankscope.series.files import ENDINGS
from rankscope.series.frequency import infer_freq, period
from rankscope.series.record import check_series
from rankscope_eval.embedded import EMBEDDED, embedded_series
from rankscope_eval.suites import DEFAULT_SUITE, Suite, Task, load_suite

SCRIPTED = "autogluon/chronos_datasets_extra"
"""A repository that consists of a loading script; scripts are never run here."""


@dataclass(frozen=True)
class LoadedSuite:
    """A suite and its series; every source is read once, however many models and points are scored on it.

    Attributes:
        suite: the tasks.
        folder: where their files are.
        max_series: how many series of each data set count, the first ones; None for all.
        held: by source, how many series it has and those that count; tasks that differ in nothing but how they are
            forecast share theirs.
    """

    suite: Suite
    folder: Path | None = None
    max_series: int | None = None
    held: dict[Task, tuple[int, list[Series]]] = field(default_factory=dict, repr=False, compare=False)

    def files(self, task: Task) -> tuple[Path, ...]:
        """Local files of a task; none where it is embedded or has to come from the hub.

        Raises:
            DataError: the task has no other source and its files are missing.
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
        """Series of a task, in the order of its source.

        Raises:
            DataError: they cannot be had, or cannot be evaluated as the task asks.
        """
        where = f"task {task.name!r}"
        named = "" if (task.file or task.embedded) and task.hf_repo is None else task.name
        source = replace(task, name=named, benchmark="", season_length=None, num_series=None, **_ANY_WINDOW)
        if source not in self.held:
            found = _read(task, self.files(task))
            check_series(found, where)
            self.held[source] = len(found), found[: self.max_series]
        count, series = self.held[source]
        if task.num_series is not None and count != task.num_series:
            raise DataError(f"{where} holds {count} series where the suite says num_series: {task.num_series}.")
        short = [one for one in series if len(one) < 1 - task.offset]
        if short:
            raise DataError(
                f"{where}: series {short[0].item_id!r} has {len(short[0])} values, but offset {task.offset} needs at "
                f"least {1 - task.offset} ({len(short)} of {len(series)} series are too short)."
            )
        return series


_ANY_WINDOW: dict[str, Any] = {"prediction_length": 1, "offset": -1, "num_rolls": 1}


def read_suite(
    suite: str | Path | Suite = DEFAULT_SUITE,
    data: str | Path | None = None,
    *,
    tasks: Sequence[str] | None = None,
    max_series: int | None = None,
) -> LoadedSuite:
    """Read every local data set of a suite, so that a bad one is found before the first forecast and not after hours.

    What is read stays in memory; embedded sets and those of the hub are read when they are first asked for.

    Args:
        suite: a shipped suite, a YAML file, or one at hand.
        data: folder of local data files; that of the YAML by default.
        tasks: names of the tasks to keep; all by default.
        max_series: how many series of each data set to keep, the first ones; all in the published protocol.

    Raises:
        RankscopeError: the suite or an option cannot be used, a task has no source, or a local one cannot be evaluated
            as the task asks.
    """
    if max_series is not None and (isinstance(max_series, bool) or max_series < 1):
        raise OptionError(f"max_series {max_series!r} is not usable: give a whole number, at least 1.")
    chosen = (suite if isinstance(suite, Suite) else load_suite(suite)).select(None if tasks is None else list(tasks))
    if data is not None and not Path(data).is_dir():
        raise DataError(f"data folder {data} does not exist.")
    loaded = LoadedSuite(chosen, chosen.folder if data is None else Path(data), max_series)
    local = [task for task in chosen.tasks if loaded.files(task)]
    for task in local:
        loaded.series(task)
    return loaded


def _read(task: Task, paths: tuple[Path, ...]) -> list[Series]:
    """Series of a task's source; without paths it is embedded, or else on the hub."""
    if task.embedded is not None:
        return embedded_series(task.embedded)
    if not paths:
        return hub_series(str(task.hf_repo), task.name)
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


def hub_series(repo: str, name: str) -> list[Series]:
    """Series of data set ``name`` of a hub repository; each list column is one univariate series of its row.

    Values pass through single precision, as they do where the published scores were computed.

    Raises:
        DataError: the package ``datasets``, the network or the data set is missing.
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
    except Exception as error:  # hub, network, cache and parser each raise their own
        reason = (str(error).strip().splitlines() or [""])[0]
        raise DataError(
            f"data set {name!r} cannot be had from {repo} ({type(error).__name__}: {reason[:160]}): "
            f"check the network, or put {name}.parquet into a folder and give --data."
        ) from error
    return table_to_series(table, f"{repo}/{name}")


def table_to_series(table: Any, where: str) -> list[Series]:
    """Series of a numpy-formatted ``datasets.Dataset`` with a ``timestamp`` list column.

    Raises:
        DataError: there is no timestamp column, no list of numbers, or no frequency to be told.
    """
    import pandas as pd

    columns = list(table.features)
    if "timestamp" not in columns or len(table) == 0:
        raise DataError(f"{where} has no rows with a timestamp column; its columns are {', '.join(columns)}.")
    first = table[0]
    fields = [c for c in columns if c != "timestamp" and _is_numbers(first[c])]
    if not fields:
        raise DataError(f"{where} has no list column of numbers; its columns are {', '.join(columns)}.")
    freq = infer_freq(pd.DatetimeIndex(first["timestamp"]))  # one frequency for the whole set, as published
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
