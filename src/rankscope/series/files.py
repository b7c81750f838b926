"""Open files of series, or folders of them, as tables, whole or in batches."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from rankscope.errors import DataError, unknown_choice
from rankscope.series.formats import Rows, Source, arrow_batches, open_arrow, open_csv, open_jsonl, open_parquet

FORMATS: dict[str, tuple[tuple[str, ...], Callable[[Path, int | None, Collection[str]], Source]]] = {
    "parquet": ((".parquet", ".pq"), open_parquet),
    "arrow": ((".arrow", ".feather", ".ipc"), open_arrow),
    "csv": ((".csv",), open_csv),
    "wide_csv": ((), open_csv),
    "jsonl": ((".jsonl", ".ndjson", ".json"), open_jsonl),
}
"""Format → suffixes and reader; ``wide_csv`` has one series per column."""
ENDINGS = tuple(ending for endings, _ in FORMATS.values() for ending in endings)


def open_file(path: str | Path, size: int | None, *, format: str | None = None, texts: Collection[str] = ()) -> Source:
    """Open a file of series, or a folder of files with the same columns, which are read in the order of their paths.

    Args:
        path: path of the file or folder.
        size: maximum rows per batch (CSV: some thousands); None for no limit.
        format: one of `FORMATS` (default: by suffix).
        texts: lower-case names of CSV columns that stay strings even if they look numeric or missing.

    Raises:
        DataError: the file is missing, of unknown format, or damaged; also raised during iteration.
    """
    file = Path(path)
    if os.path.isdir(file):  # Path.is_dir raises where a name is too long
        return _open_folder(file, size, format, texts)
    if not os.path.isfile(file):
        raise DataError(f"data file {file} does not exist.")
    name = file_format(file) if format is None else format
    if name not in FORMATS:
        raise DataError(unknown_choice("format", name, FORMATS))
    if file.stat().st_size == 0:
        raise DataError(f"{file}: the file is empty.")
    with _named(file, name, [0]):
        source = FORMATS[name][1](file, size, texts)
    return Source(file, source.unit, source.rows, _guarded(source.batches, file, name, [0]), source.share)


def data_files(folder: Path) -> list[Path]:
    """Return the files of a folder and its subfolders that hold data, by their suffixes, in the order of their paths.

    Names that begin with ``_`` or ``.`` are left out: they are what writers of such folders note.

    Raises:
        DataError: there is none, or there are files of two formats.
    """
    below = (file for file in folder.rglob("*") if file.suffix.lower() in ENDINGS and file.is_file())
    hidden = ("_", ".")
    files = sorted(file for file in below if not any(one.startswith(hidden) for one in file.relative_to(folder).parts))
    if not files:
        raise DataError(f"{folder} is a folder without files that end in {', '.join(ENDINGS)}.")
    other = next((file for file in files if file_format(file) != file_format(files[0])), None)
    if other is not None:
        names = f"{files[0].name} and {other.name}"
        raise DataError(f"{folder} holds files of several formats, such as {names}: name one file.")
    return files


def _open_folder(folder: Path, size: int | None, format: str | None, texts: Collection[str]) -> Source:
    files = data_files(folder)
    done = [0]
    rows = _one_after_the_other(files, size, format, texts, done)
    unit = "row" if (format or file_format(files[0])) in {"parquet", "arrow"} else "line"
    return Source(folder, unit, None, rows, lambda: done[0] / len(files))


def _one_after_the_other(
    files: Sequence[Path], size: int | None, format: str | None, texts: Collection[str], done: list[int]
) -> Iterator[Rows]:
    """Rows of files, numbered through; ``done`` counts the files that were read."""
    before, columns = 0, None
    for file in files:
        last, begun = before, False
        for batch in open_file(file, size, format=format, texts=texts).batches:
            columns = columns or set(batch.frame.columns)
            if len(batch.frame) and not begun and set(batch.frame.columns) != columns:
                odd = sorted(map(str, columns.symmetric_difference(batch.frame.columns)))[0]
                raise DataError(
                    f"{file}: column {odd!r} is not in every file: the files of a folder need the same columns."
                )
            broken = tuple(replace(one, line=one.line + before) for one in batch.broken)
            begun = begun or bool(len(batch.frame))  # later lines of JSON may bring more
            rows = replace(batch, lines=batch.lines + before, broken=broken)
            last = max([last, *rows.lines[-1:].tolist(), *(one.line for one in broken[-1:])])
            yield rows
        before = last
        done[0] += 1


def file_format(path: Path) -> str:
    """Return the file format by suffix.

    Raises:
        DataError: unknown suffix.
    """
    for name, (endings, _) in FORMATS.items():
        if path.suffix.lower() in endings:
            return name
    raise DataError(f"{path} has an unknown extension: use one of {', '.join(ENDINGS)}, uncompressed.")


def _guarded(batches: Iterator[Rows], file: Path, name: str, seen: list[int]) -> Iterator[Rows]:
    while True:
        with _named(file, name, seen):
            batch = next(batches, None)
            if batch is not None and not batch.frame.columns.is_unique:
                twice = batch.frame.columns[batch.frame.columns.duplicated()][0]
                raise DataError(f"two columns are named {twice!r}: rename one.")
        if batch is None:
            return
        if len(batch.lines):
            seen[0] = int(batch.lines[-1])
        yield batch


@contextlib.contextmanager
def _named(file: Path, name: str, seen: list[int]) -> Iterator[None]:
    """Convert parser errors to `DataError` with the file and the last valid row."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{file}: {error}") from error
    except Exception as error:
        if isinstance(error, UnicodeError) or "invalid UTF8" in str(error):
            raise DataError(f"{file} is not UTF-8 text: save it as UTF-8.") from error
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        place = f" after row {seen[0]}" if seen[0] else ""
        raise DataError(f"{file} cannot be read as {name}{place}: {reason}") from error


def check_arrow(path: str | Path) -> None:
    """Validate all values of an Arrow file, for readers that do not: damaged offsets would end the process.

    Raises:
        DataError: it is damaged.
    """
    with _named(Path(path), "arrow", [0]):
        for _ in arrow_batches(Path(path), None)[1]:
            pass


def joined(batches: Sequence[Rows], path: Path, number: int = 0) -> Rows:
    """Concatenate batches of a file into chunk ``number``.

    Raises:
        DataError: a time is out of range.
    """
    import pandas as pd

    broken = tuple(one for batch in batches for one in batch.broken)
    there = [one for one in batches if len(one.frame)] or batches[:1]
    frame, lines = there[0].frame, there[0].lines
    if len(there) > 1:
        try:
            frame = pd.concat([one.frame for one in there], ignore_index=True)
        except pd.errors.OutOfBoundsDatetime as error:
            place = f"{path}: a time in rows {lines[0]} to {there[-1].lines[-1]}"
            raise DataError(f"{place} is out of range: {str(error).splitlines()[0]}.") from error
        lines = np.concatenate([one.lines for one in there])
    return Rows(frame, lines, broken, number)
