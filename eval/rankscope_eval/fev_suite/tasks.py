"""Tasks of a fev benchmark: shipped lists by name, or a YAML file."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankscope.errors import DataError, OptionError, unknown_choice
from rankscope.io import codec
from rankscope.series.files import check_arrow
from rankscope_eval.reasons import as_data_error
from rankscope_eval.suites import named

if TYPE_CHECKING:
    from fev import Task

MINI = "fev-mini"
LISTS = ("fev-bench", MINI, "chronos-zero-shot")
"""Names of the shipped lists."""
MIRROR = "FEV_DATASETS_PREFIX"
"""Environment variable by which fev reads hub data sets from a folder."""


def fev() -> Any:
    """Import fev, whose messages on standard error are kept to warnings.

    Raises:
        OptionError: it is not installed.
    """
    try:
        import fev as found
    except ImportError as error:
        raise OptionError(
            f"fev tasks need the package fev ({error}): pip install 'rankscope[fev]', or give another --suite."
        ) from error
    logging.getLogger("fev").setLevel(logging.WARNING)
    return found


def read_tasks(suite: str | Path, data: str | Path | None = None, names: Sequence[str] | None = None) -> list[Task]:
    """Read tasks in fev's form, ``{"tasks": [{...}, …]}``.

    Args:
        suite: one of `LISTS`, or a YAML file. Relative paths of data sets count from the file's folder.
        data: a folder of data sets: what a task would read from the hub is read from ``DATA/CONFIG/*.parquet``
            (see `mirrored`), relative paths count from here.
        names: names of the tasks to keep; all by default.

    Raises:
        DataError: no such list or file, a field that fev refuses, or an unknown name.
        OptionError: fev is not installed.
    """
    make = fev().Task
    path = Path(suite)
    where = str(suite)
    if where in LISTS:
        content = codec.load(_shipped("fev-bench" if where == MINI else where), "tasks")
        given = [{**content["defaults"], **task} for task in content["tasks"]]
        if where == MINI:
            given = [task for task in given if _name(task) in content["mini"]]
    elif path.suffix.lower() not in (".yaml", ".yml") and not path.exists():
        raise DataError(unknown_choice("list of fev tasks", where, LISTS, "A path to a YAML file works too."))
    else:
        content = codec.load(path, "tasks")
        listed = content.get("tasks") if isinstance(content, dict) else None
        if not isinstance(listed, list) or not listed:
            raise DataError(f"{path} lists no fev tasks: it has to be a mapping with a list `tasks`.")
        given = listed
    folder = path.parent if data is None else Path(data)
    tasks: list[Task] = []
    for number, fields in enumerate(given, 1):
        if not isinstance(fields, dict):
            raise DataError(f"{where} task {number} is not a mapping of fev.Task's fields.")
        with as_data_error(f"{where} task {number} ({_name(fields)})"):
            task = make(**_placed(fields, folder))
            if task.seasonality < 1:
                raise ValueError("seasonality has to be at least 1")
            for other in tasks:
                if task.task_name == other.task_name:
                    raise ValueError(f"another task is named {task.task_name}: give each a task_name")
                if _index(task) == _index(other):
                    raise ValueError(f"fev cannot tell it from {other.task_name}: leave one of them out")
        tasks.append(task)
    return named(tasks, lambda task: str(task.task_name), names)


@contextmanager
def mirrored(data: str | Path | None) -> Iterator[None]:
    """Let fev read hub data sets from a folder inside the block."""
    before = os.environ.get(MIRROR)
    if data is not None:
        os.environ[MIRROR] = str(data)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(MIRROR, None)
        else:
            os.environ[MIRROR] = before


def load_data(task: Task) -> None:
    """Load the data set of a task.

    Raises:
        DataError: there is none, or it does not fit the task.
    """
    import pyarrow.compute as pc

    place = task.dataset_path if task.dataset_config is None else f"{task.dataset_path}, {task.dataset_config}"
    with as_data_error(f"fev task {task.task_name}: {place} cannot be used"):
        for file in data_files(task):
            if file.suffix == ".arrow":
                check_arrow(file)
        lengths = pc.list_value_length(task.load_full_dataset(num_proc=1).data.table.column(task.timestamp_column))
        longest = pc.max(lengths).as_py()
        if task.num_windows > longest:  # before fev counts them
            raise ValueError(f"num_windows is {task.num_windows}, and no series has more than {longest} values")


def data_files(task: Task) -> list[Path]:
    """Return the local files of a task's data set; none where it is on the hub."""
    mirror = os.environ.get(MIRROR)
    if task.dataset_config is None:
        path = Path(task.dataset_path)
        return sorted(path.parent.glob(path.name))
    return [] if mirror is None else sorted((Path(mirror) / task.dataset_config).glob("*.parquet"))


def _index(task: Task) -> tuple[str, ...]:
    """Fields by which fev's tables tell tasks apart."""
    fields = task.to_dict()
    return tuple(str(fields[name]) for name in fev().analysis.TASK_DEF_COLUMNS)


def _placed(fields: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Fields with a relative path of a file below ``folder``, and a file's name for one that has none."""
    path = fields.get("dataset_path")
    if not isinstance(path, str) or fields.get("dataset_config") is not None or "://" in path:
        return fields
    return {"task_name": Path(path).stem, **fields, "dataset_path": str(folder / path)}


def _name(fields: dict[str, Any]) -> str:
    return str(fields.get("task_name") or fields.get("dataset_config") or fields.get("dataset_path") or "nameless")


def _shipped(name: str) -> Path:
    return Path(str(resources.files("rankscope_eval") / "fev_suite" / "lists" / f"{name}.yaml"))
