"""Results that are there already when an evaluation is to go on: whether they are of the same evaluation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankscope.errors import DataError, OutputError
from rankscope.io import codec
from rankscope.io.atomic import sweep
from rankscope_cli.exits import say

if TYPE_CHECKING:
    from rankscope_eval import Suite
    from rankscope_eval.metrics import Windows
    from rankscope_eval.suites import Task

FEV, GIFT = "fev:", "gift-eval"
"""Prefix of suites of fev tasks, and the name of GIFT-Eval."""


def result_files(out: Path, submissions: Sequence[Path] | None) -> list[Path]:
    """Return the files of results, a table or those of submissions; none if one is missing.

    Args:
        out: the table.
        submissions: folders of submissions to GIFT-Eval in place of a table.
    """
    if submissions is None:
        return [out] if out.exists() else []
    from rankscope_eval.gift_eval.report import CONFIG, RESULTS

    return [one / RESULTS for one in submissions] if all((one / CONFIG).is_file() for one in submissions) else []


@dataclass(frozen=True)
class Wanted:
    """A data set of an evaluation.

    Attributes:
        may_lack: whether it is left out if the hub does not answer.
        prediction_length: steps of every window; None for fev and GIFT-Eval.
        read: test windows; None where nothing but the hub has them.
    """

    may_lack: bool = False
    prediction_length: int | None = None
    read: Callable[[], Windows | None] = lambda: None

    def differs(self, row: Mapping[str, Any]) -> str | None:
        """Say in what a row of results was scored otherwise; None if it was not, or does not say."""
        if self.prediction_length is None:
            return None
        wanted: dict[str, int | None] = {"prediction_length": self.prediction_length}
        windows = self.read()
        if windows is not None:
            wanted |= {"series": len(windows.series), "windows": len(windows.contexts)}
            wanted |= {"season_length": windows.season}
        return next(
            (
                f"{name} {_text(row[name])}, not {_text(value)}"
                for name, value in wanted.items()
                if name in row and _text(row[name]) != _text(value)
            ),
            None,
        )


def data_sets(
    suite: str | Suite, data: str | None, tasks: Sequence[str] | None, max_series: int | None
) -> dict[tuple[str, str], Wanted]:
    """Return a suite's data sets by benchmark, empty for fev and GIFT-Eval, and name."""
    if isinstance(suite, str) and suite.startswith(FEV):
        from rankscope_eval.fev_suite.tasks import read_tasks

        return {("", str(task.task_name)): Wanted() for task in read_tasks(suite.removeprefix(FEV), data, tasks)}
    if suite == GIFT:
        from rankscope_eval.gift_eval.sets import configurations, place

        known = [one for one in configurations(tasks) if place(one.source, Path(str(data))) is not None]
        return {("", one.name): Wanted() for one in known}
    chosen, folder = _chosen(suite, data, tasks)
    return {
        (task.benchmark, task.name): Wanted(
            task.hf_repo is not None, task.prediction_length, partial(_windows, task, chosen, folder, max_series)
        )
        for task in chosen.tasks
    }


def _chosen(suite: str | Suite, data: str | None, tasks: Sequence[str] | None) -> tuple[Suite, Path | None]:
    """The suite of the named tasks, and the folder of its files."""
    from rankscope_eval import load_suite

    whole = load_suite(suite) if isinstance(suite, str) else suite
    chosen = whole.select(tasks, "--tasks")
    return chosen, chosen.folder if data is None else Path(data)


def _windows(task: Task, suite: Suite, folder: Path | None, max_series: int | None) -> Windows | None:
    if task.hf_repo is not None:
        return None
    from rankscope_eval.sources import LoadedSuite

    return LoadedSuite(suite, folder, max_series).windows(task)


def check_finished(
    out: str,
    files: Iterable[Path],
    models: Sequence[str],
    data_sets: Mapping[tuple[str, str], Wanted],
    settings: Mapping[str, Any],
) -> None:
    """Refuse to take results for those of an evaluation if they are of other models, data sets or settings.

    Args:
        out: the option, for the error.
        files: tables or JSON documents of results.
        models: of the evaluation, with the baseline.
        data_sets: by benchmark and name.
        settings: of the evaluation, by their names in the JSON document.

    Raises:
        OutputError: they differ as far as the files tell, or hold no results.
    """
    given = [_plain(model) for model in models]
    least = [name for (_, name), wanted in data_sets.items() if not wanted.may_lack]
    told: dict[str, Any] = {}
    found: tuple[set[str], set[str]] = set(), set()
    rows: dict[tuple[str, str], Mapping[str, Any]] = {}
    for file in files:
        try:
            document = _document(file)
            if not document["rows"]:
                raise DataError(f"{file} has no rows.")
            for row in document["rows"]:
                found[0].add(_plain(row.get("model") or row["model_name"]))
                found[1].add(str(row.get("dataset") or row["task_name"]))
                rows.setdefault((str(row.get("benchmark")), str(row.get("dataset"))), row)
        except (OSError, DataError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise _other(out, "and holds no results that can be read") from error
        told |= {name: document[name] for name in settings if name in document}
    _compare(out, "model", found[0], given, given)
    _compare(out, "data set", found[1], least, (name for _, name in data_sets))
    for key, wanted in data_sets.items():
        other = wanted.differs(rows.get(key, {}))
        if other is not None:
            raise _other(out, f"with {other} of data set {key[1]!r}")
    for name, value in told.items():
        if _text(value) != _text(settings[name]):
            raise _other(out, f"with {name} {_text(value)}, not {_text(settings[name])}")


def check_unchanged(
    out: str,
    files: Sequence[Path],
    models: Sequence[str],
    suite: str | Suite,
    data: str | None,
    tasks: Sequence[str] | None,
) -> None:
    """Refuse to take results for those of an evaluation if weights or series on disk are newer.

    Raises:
        OutputError: one is; data of fev and GIFT-Eval are not looked at.
    """
    made = min(file.stat().st_mtime for file in files)
    weights = [one for model in models for name in ("config.json", "*.safetensors") for one in Path(model).glob(name)]
    for source in (*weights, *_suite_files(suite, data, tasks)):
        if source.stat().st_mtime > made:
            raise _other(out, f"and older than {source}")


def _suite_files(suite: str | Suite, data: str | None, tasks: Sequence[str] | None) -> Iterator[Path]:
    if isinstance(suite, str) and (suite.startswith(FEV) or suite == GIFT):
        return
    from rankscope_eval.sources import LoadedSuite

    chosen, folder = _chosen(suite, data, tasks)
    for task in chosen.tasks:
        yield from LoadedSuite(chosen, folder).files(task)


def leave_finished(out: str, json: bool) -> None:
    """Say that there is nothing left to do, print the document if it is asked for, and remove what a kill left.

    Raises:
        OutputError: a document is asked for, and the result is a table.
    """
    if json and Path(out).suffix.lower() != ".json":
        raise OutputError(f"{out} is finished, and lacks what --json prints: leave --json out, or use --out FILE.json.")
    sweep(Path(out).parent, Path(out).name)
    say(f"{out} is finished: nothing to resume.")
    if json:
        sys.stdout.write(Path(out).read_text(encoding="utf-8"))


def _compare(out: str, what: str, found: set[str], least: Iterable[str], most: Iterable[str]) -> None:
    lacking = next((name for name in least if name not in found), None)
    if lacking is not None:
        raise _other(out, f"without {what} {lacking!r}")
    more = found.difference(most)
    if more:
        raise _other(out, f"with {what} {min(more)!r} as well")


def _document(file: Path) -> Mapping[str, Any]:
    if file.suffix.lower() == ".json":
        return dict(codec.load(file, "results"))
    import pandas as pd

    frame = (
        pd.read_parquet(file) if file.suffix.lower() == ".parquet" else pd.read_csv(file, dtype=str, na_filter=False)
    )
    rows = frame.to_dict("records")
    return {**(rows[0] if rows else {}), "rows": rows}  # tables repeat the settings in every row


def _text(value: object) -> str:
    """Text of a setting, the same of a table's cell and of a number."""
    if value is None or value in ("", "none") or value != value:
        return "none"
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)


def _plain(model: str) -> str:
    return model.rstrip("/")


def _other(out: str, how: str) -> OutputError:
    return OutputError(f"{out} is finished, {how}: choose another --out, or start anew with --force.")
