"""Evaluation suites and published scores: records, and parsing of their YAML and CSV files."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from rankscope.errors import DataError, unknown_choice
from rankscope.io import codec
from rankscope.series import Columns
from rankscope.series.files import data_files

Named = TypeVar("Named")
DEFAULT_SUITE = "embedded"
LONGEST_NAME = 255
"""Bytes of a file's name that file systems take."""


@dataclass(frozen=True)
class PublishedScore:
    """Published scores of a model on a data set."""

    dataset: str
    model: str
    MASE: float
    WQL: float
    benchmark: str = ""


@dataclass(frozen=True)
class Task:
    """Evaluation task: a data set with its forecasting and scoring protocol.

    The fields are those of the YAML file. ``offset`` is negative and counts from the end of each series to the start of
    the first window; ``season_length`` overrides GluonTS' season for the frequency. Series come from ``file`` (relative
    to the data folder), ``embedded`` (a name in ``rankscope_eval.embedded``), a file named after the task in the data
    folder, or ``hf_repo``. Tasks with the same ``source`` are cuts of the same data, which intervals resample as one.
    """

    name: str
    prediction_length: int
    offset: int
    num_rolls: int = 1
    benchmark: str = ""
    freq: str | None = None
    season_length: int | None = None
    num_series: int | None = None
    file: tuple[str, ...] = ()
    format: str | None = None
    id_column: str | None = None
    time_column: str | None = None
    target_column: str | None = None
    embedded: str | None = None
    hf_repo: str | None = None
    source: str | None = None


@dataclass(frozen=True)
class Suite:
    """Tasks, the folder their files are relative to, and published scores."""

    name: str
    tasks: tuple[Task, ...]
    folder: Path | None = None
    published: tuple[PublishedScore, ...] = ()

    def select(self, names: Sequence[str] | None, source: str = "tasks") -> Suite:
        """Return the suite restricted to the named tasks, in suite order.

        Raises:
            DataError: a name is not in the suite.
        """
        return replace(self, tasks=tuple(named(self.tasks, lambda task: task.name, names, source)))


def named(
    found: Sequence[Named], name: Callable[[Named], str], names: Sequence[str] | None, source: str = "tasks"
) -> list[Named]:
    """Return what has these names, several of one name too, in the order of ``found``; all if ``names`` is None.

    Raises:
        DataError: there is none of a name.
    """
    if names is None:
        return list(found)
    if isinstance(names, str):
        raise DataError(f"{source} must be a list, such as [{names!r}].")
    known = [name(one) for one in found]
    for wanted in names:
        if wanted not in known:
            raise DataError(unknown_choice(source, wanted, known))
    if not names:
        raise DataError(f"{source} is empty: name at least one of {', '.join(known)}.")
    return [one for one in found if name(one) in names]


def list_suites() -> tuple[str, ...]:
    """Return the names of the shipped suites, the default first."""
    found = sorted(entry.name[:-5] for entry in _shipped().iterdir() if entry.name.endswith(".yaml"))
    return (DEFAULT_SUITE, *(name for name in found if name != DEFAULT_SUITE))


def load_suite(suite: str | Path = DEFAULT_SUITE) -> Suite:
    """Load a shipped suite by name, or a suite from a YAML file.

    A YAML file is a list of tasks, each with at least ``name``, ``prediction_length`` and ``offset``. Next to it,
    ``<stem>.csv`` or ``reference.csv`` may hold published scores (columns dataset, model, MASE, WQL).

    Raises:
        DataError: no such suite, or invalid YAML.
    """
    name = str(suite)
    if name in list_suites():
        root = Path(str(_shipped()))
        return _read_suite(root / f"{name}.yaml", name, folder=None)
    path = Path(suite)
    if path.suffix.lower() in (".yaml", ".yml") or path.exists():
        if not path.is_file():
            raise DataError(f"suite file {path} does not exist; the shipped suites are {', '.join(list_suites())}.")
        if path.suffix.lower() in (".csv", ".parquet", ".arrow", ".jsonl"):
            task = f"- {{name: {path.stem}, file: {path.name}, prediction_length: 7, offset: -7}}"
            raise DataError(f"{path} holds series: name it in a suite, a YAML file beside it, e.g. `{task}`.")
        return _read_suite(path, path.stem, folder=path.parent)
    raise DataError(unknown_choice("suite", name, list_suites(), "A path to a YAML file works too."))


def series_suite(
    file: str | Path,
    horizon: int,
    windows: int = 1,
    *,
    freq: str | None = None,
    season_length: int | None = None,
    columns: Columns | None = None,
) -> Suite:
    """Return the suite of one file of series, in any form that `read_series` reads.

    Args:
        file: the series; of a folder each file, with all values of its series.
        horizon: steps of every window.
        windows: windows at the end of each series, end to end; each is forecast from all values before it.
        freq: frequency (default: from the file or its timestamps).
        season_length: season of seasonal-naive and MASE (default: GluonTS' season for the frequency).
        columns: non-default names of the id, time and target columns.

    Raises:
        DataError: there is no such file, or a value below 1.
    """
    if not isinstance(file, str | os.PathLike):
        raise DataError(f"a {type(file).__name__} is not a file: write it first, as .parquet or .csv.")
    path, names = Path(file), columns or Columns()
    if not path.exists():
        raise DataError(f"data file {path} does not exist.")
    folder, files = (path, data_files(path)) if path.is_dir() else (path.parent, [path])
    name = path.resolve().stem
    fields = {
        "name": name,
        "prediction_length": horizon,
        "offset": -horizon * windows,
        "num_rolls": windows,
        "file": [one.relative_to(folder).as_posix() for one in files],
        "freq": freq,
        "season_length": season_length,
        "id_column": names.id,
        "time_column": names.time,
        "target_column": names.target,
    }
    return Suite(name, (parse_task(fields, str(path), name),), folder)


def parse_task(item: Any, where: str, benchmark: str) -> Task:
    """Parse a task from its YAML mapping.

    Raises:
        DataError: a field is missing, unknown or invalid.
    """
    if not isinstance(item, Mapping):
        raise DataError(f"{where} is not a mapping with name, prediction_length and offset.")
    given: dict[str, Any] = {key: value for key, value in item.items() if value is not None}
    if isinstance(given.get("file"), str):
        given["file"] = [given["file"]]
    for key in {"name", "source", "freq", "id_column", "time_column", "target_column"} & given.keys():
        given[key] = str(given[key])  # YAML parses some names as numbers
    named = f"{where} ({given['name']})" if "name" in given else where
    task: Task = codec.build(Task, {"benchmark": benchmark, **given}, where=named, error=DataError)
    for file in (task.name, *task.file):
        if any(len(os.fsencode(part)) > LONGEST_NAME or "\0" in part for part in Path(file).parts):
            raise DataError(f"{named}: {file[:60]!r} is not a name that a file can have.")
    for key in ("prediction_length", "num_rolls", "season_length", "num_series"):
        value = getattr(task, key)
        if value is not None and value < 1:
            raise DataError(f"{named}: {key} has to be at least 1, not {value}.")
    if task.offset >= 0:
        raise DataError(f"{named}: offset has to be negative (it counts from the end), not {task.offset}.")
    if -task.offset < task.prediction_length * task.num_rolls:
        raise DataError(
            f"{named}: offset {task.offset} leaves no room for {task.num_rolls} window(s) "
            f"of {task.prediction_length} steps."
        )
    return task


def _read_suite(path: Path, name: str, folder: Path | None) -> Suite:
    content = codec.load(path, "suite")
    if not isinstance(content, list) or not content:
        raise DataError(f"{path} is not a suite: it has to be a list of tasks.")
    tasks = tuple(parse_task(item, f"{path} task {n}", name) for n, item in enumerate(content, start=1))
    seen = set()
    for task in tasks:
        if (task.benchmark, task.name) in seen:
            raise DataError(f"{path}: task {task.name!r} appears twice in benchmark {task.benchmark!r}.")
        seen.add((task.benchmark, task.name))
    return Suite(name, tasks, folder, _published_beside(path, tasks))


def _published_beside(path: Path, tasks: Sequence[Task]) -> tuple[PublishedScore, ...]:
    """Published scores in a file of the suite's name, if it is neither its series nor what `eval` wrote, or else in
    ``reference.csv``.
    """
    names = {task.name for task in tasks}
    own = {file for task in tasks for file in (*task.file, f"{task.name}.csv")}
    for candidate in (path.with_suffix(".csv"), path.with_name("reference.csv")):
        if candidate.is_file() and candidate.name not in own and "baseline" not in _header(candidate):
            return tuple(score for score in read_published(candidate) if score.dataset in names)
    return ()


def _header(path: Path) -> list[str]:
    with path.open(encoding="utf-8", errors="replace", newline="") as stream:
        return next(csv.reader(line for line in stream if not line.startswith("#")), [])


def read_published(path: Path) -> tuple[PublishedScore, ...]:
    """Read published scores from a CSV with columns dataset, model, MASE, WQL and optionally benchmark.

    Raises:
        DataError: a column is missing or a score is not a number.
    """
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(line for line in stream if not line.startswith("#"))
            missing = {"dataset", "model", "MASE", "WQL"} - set(reader.fieldnames or ())
            if not missing:
                return tuple(_published(row) for row in reader)
    except (OSError, UnicodeError, csv.Error) as error:
        raise DataError(f"{path} is not a readable CSV: {error}.") from error
    except (TypeError, ValueError) as error:
        raise DataError(f"{path} line {reader.line_num}: a score is not a number.") from error
    raise DataError(f"{path} lacks the column(s) {', '.join(sorted(missing))}.")


def _published(row: Mapping[str, str]) -> PublishedScore:
    scores = float(row["MASE"]), float(row["WQL"])
    return PublishedScore(row["dataset"], row["model"], *scores, row.get("benchmark") or "")


def _shipped() -> Any:
    return resources.files("rankscope_eval") / "suites"
