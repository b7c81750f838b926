"""Read Parquet, Arrow IPC, CSV and JSON-lines files, or folders of them, as tables, whole or in batches."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankscope.errors import DataError, unknown_choice
from rankscope.io import codec

if TYPE_CHECKING:
    import pandas as pd

CSV_BLOCK = 1 << 20
"""Block size of CSV parsing in bytes; a file read whole is one block."""
LARGEST_BLOCK = 1 << 30
PAGE = 1 << 20
"""Read buffer per Parquet column in bytes."""
MISSING = (
    *("NA", "#NA", "N/A", "n/a", "#N/A", "#N/A N/A", "<NA>", "NULL", "null", "None"),
    *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
"""Words for a missing number, as pandas and pyarrow read them."""


_DATE = re.compile(
    r"\d{4}[-/]\d\d?"
    r"|\d{4}([-/.])\d\d?\1\d\d?([T ]\d\d?:\d\d.*)?"
    r"|\d\d?([-/.])\d\d?\3\d{4}([T ]\d\d?:\d\d.*)?"
)
"""Numbers may name columns; dates are what a file holds."""


@dataclass(frozen=True)
class Broken:
    """Unparsable row: its number, the cells that could be parsed, and the reason."""

    line: int
    cells: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Rows:
    """Batch of rows in file order, with row numbers from 1, unparsable rows and the chunk number."""

    frame: pd.DataFrame
    lines: np.ndarray
    broken: tuple[Broken, ...] = ()
    number: int = 0


@dataclass(frozen=True)
class Source:
    """Open file or folder.

    Attributes:
        path: path of the file or folder.
        unit: name of a row in error messages: ``row`` of a table, ``line`` of a text file.
        rows: number of rows, if stored in the file.
        batches: the rows; can be iterated once.
        share: returns the fraction read so far, from 0 to 1.
    """

    path: Path
    unit: str
    rows: int | None
    batches: Iterator[Rows]
    share: Callable[[], float]


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
    raise DataError(f"{path} has an ending that is not known: use one of {', '.join(ENDINGS)}, or state the format.")


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
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        place = f" after row {seen[0]}" if seen[0] else ""
        raise DataError(f"{file} cannot be read as {name}{place}: {reason}") from error


def _parquet(file: Path, size: int | None, _: Collection[str]) -> Source:
    import pyarrow.parquet as pq

    # Without a buffer, a whole row group is read at once; pandas writes up to a million rows per group.
    table = pq.ParquetFile(file, pre_buffer=False, buffer_size=PAGE)
    rows = table.metadata.num_rows
    done = [0]
    parts = (part for part in table.iter_batches(batch_size=size or max(1, rows), use_threads=False))
    return Source(file, "row", rows, _frames(parts, done), lambda: done[0] / max(1, rows))


def _arrow(file: Path, size: int | None, _: Collection[str]) -> Source:
    source, parts = _arrow_parts(file)
    whole = file.stat().st_size
    return Source(file, "row", None, _frames(_sliced(parts, size), [0]), lambda: source.tell() / whole)


def check_arrow(path: str | Path) -> None:
    """Validate all values of an Arrow file, for readers that do not: damaged offsets would end the process.

    Raises:
        DataError: it is damaged.
    """
    with _named(Path(path), "arrow", [0]):
        for _ in _sliced(_arrow_parts(Path(path))[1], None):
            pass


def _arrow_parts(file: Path) -> tuple[Any, Iterable[Any]]:
    """Open an Arrow file; return its stream and the record batches."""
    import pyarrow as pa

    source = pa.OSFile(str(file))  # a memory map would count towards resident memory
    try:
        reader = pa.ipc.open_file(source)
    except pa.ArrowInvalid:  # the streaming format, as written by `datasets`, has no footer
        source.seek(0)
        return source, pa.ipc.open_stream(source)
    return source, (reader.get_batch(number) for number in range(reader.num_record_batches))


def _sliced(parts: Iterable[Any], size: int | None) -> Iterator[Any]:
    for part in parts:
        part.validate(full=True)  # damaged offsets would end the process
        step = size or max(1, part.num_rows)
        for first in range(0, part.num_rows, step):
            yield part.slice(first, step)


def _frames(parts: Iterable[Any], done: list[int]) -> Iterator[Rows]:
    """Convert record batches to tables; integer columns with nulls stay integers."""
    for part in parts:
        frame = part.to_pandas(ignore_metadata=True, use_threads=False, integer_object_nulls=True, date_as_object=False)
        lines = np.arange(done[0] + 1, done[0] + 1 + len(frame))
        done[0] += len(frame)
        yield Rows(frame, lines)


def _csv(file: Path, size: int | None, texts: Collection[str]) -> Source:
    import pyarrow as pa
    import pyarrow.csv as pc

    broken: list[Broken] = []

    def note(row: Any) -> str:
        cells = tuple(next(csv.reader([row.text]), ()))
        reason = f"{row.actual_columns} columns where the header has {row.expected_columns}"
        broken.append(Broken(row.number, cells, reason))
        return "skip"

    with file.open(encoding="utf-8-sig", errors="replace", newline="") as text:
        header = next(csv.reader(text), [])
    if (value := _value_in_header(header)) is not None:
        raise DataError(f"line 1 has {value!r} in the place of a column's name: name the columns there.")
    if len(header) == 1 and (others := {*header[0]} & {*";\t|"}):
        raise DataError(f"columns are separated by {min(others)!r}: separate them by commas.")
    source = pa.OSFile(str(file))
    whole = file.stat().st_size
    block = CSV_BLOCK if size is not None else min(LARGEST_BLOCK, max(CSV_BLOCK, whole + 1))
    reader = pc.open_csv(
        source,
        read_options=pc.ReadOptions(use_threads=False, block_size=block),
        parse_options=pc.ParseOptions(invalid_row_handler=note, ignore_empty_lines=False),
        convert_options=pc.ConvertOptions(
            column_types={name: pa.string() for name in header},  # a non-numeric cell must not abort parsing
            strings_can_be_null=True,
            null_values=[""],  # the words of `MISSING` may be ids
        ),
    )
    return Source(file, "line", None, _csv_frames(file, reader, broken, texts), lambda: source.tell() / whole)


def _value_in_header(header: Sequence[str]) -> str | None:
    """Return a date in the first line, which shows it to be data.

    >>> _value_in_header(["2024-01-01", "100"]), _value_in_header(["date", "1", "2024.5"])
    ('2024-01-01', None)
    """
    return next((cell for cell in header if _DATE.fullmatch(cell.strip())), None)


def _csv_frames(file: Path, reader: Any, broken: list[Broken], texts: Collection[str]) -> Iterator[Rows]:
    """Convert CSV blocks to tables; ``broken`` is filled during parsing and drained here."""
    line = 2  # first line after the header
    blank: list[int] | None = None
    frame = reader.schema.empty_table().to_pandas()
    for part in reader:
        frame = _with_numbers(part, texts).to_pandas()
        lines = np.arange(line, line + len(frame))
        here = 0
        while here < len(broken) and len(lines) and broken[here].line <= lines[-1]:
            lines[lines >= broken[here].line] += 1
            here += 1
        if len(lines):
            line = int(lines[-1]) + 1
        bare = frame.isna().all(axis=1).to_numpy()
        if bare.any():  # an empty line is ignored; a line of commas is a step without values
            blank = _blank_lines(file) if blank is None else blank
            bare &= np.isin(lines, blank)
        yield Rows(frame[~bare], lines[~bare], tuple(broken[:here]))
        del broken[:here]
    if broken:
        yield Rows(frame.iloc[:0], np.arange(0), tuple(broken))


def _blank_lines(file: Path) -> list[int]:
    with file.open("rb") as lines:
        return [n for n, text in enumerate(lines, start=1) if not text.strip()]


def _with_numbers(part: Any, texts: Collection[str]) -> Any:
    """Convert fully numeric columns to numbers; ids and times stay strings."""
    import pyarrow as pa

    columns = [
        column if name.lower() in texts else _numbers(column)
        for name, column in zip(part.schema.names, part.columns, strict=True)
    ]
    return pa.table(columns, names=part.schema.names)


def _numbers(column: Any) -> Any:
    """Convert strings to numbers, `MISSING` to null; strings stay if one is neither."""
    import pyarrow as pa
    import pyarrow.compute as pc

    with contextlib.suppress(pa.ArrowInvalid):
        return pc.cast(column, pa.float64())
    column = pc.if_else(pc.is_in(column, pa.array(MISSING)), pa.scalar(None, pa.string()), column)
    with contextlib.suppress(pa.ArrowInvalid):
        return pc.cast(column, pa.float64())
    return column


def _jsonl(file: Path, size: int | None, _: Collection[str]) -> Source:
    source = file.open("rb")
    whole = file.stat().st_size
    return Source(
        file, "line", None, _json_frames(source, size), lambda: 1.0 if source.closed else source.tell() / whole
    )


def _json_frames(source: Any, size: int | None) -> Iterator[Rows]:
    """Convert lines to tables; each has the columns of those before it, and those that came with it."""
    import pandas as pd

    columns: list[str] = []
    first = 1
    while texts := list(islice(iter(source.readline, b""), size)):
        rows, lines, broken = [], [], []
        for number, text in enumerate(texts, start=first):
            if not text.strip():
                continue
            try:
                row = codec.loads(text)
            except json.JSONDecodeError as error:
                broken.append(Broken(number, (), f"no JSON: {error.msg} at column {error.colno}"))
                continue
            except UnicodeError:
                broken.append(Broken(number, (), "no UTF-8"))
                continue
            except ValueError as error:
                broken.append(Broken(number, (), f"no JSON that can be read: {error}"))
                continue
            if isinstance(row, dict):
                rows.append(row)
                lines.append(number)
            else:
                broken.append(Broken(number, (), 'no object such as {"item_id": …, "target": […]}'))
        first += len(texts)
        columns = list(dict.fromkeys([*columns, *(key for row in rows for key in row)]))
        frame = pd.DataFrame([[row.get(name) for name in columns] for row in rows], columns=columns, dtype=object)
        yield Rows(frame, np.array(lines, dtype=int), tuple(broken))
    source.close()


FORMATS: dict[str, tuple[tuple[str, ...], Callable[[Path, int | None, Collection[str]], Source]]] = {
    "parquet": ((".parquet", ".pq"), _parquet),
    "arrow": ((".arrow", ".feather", ".ipc"), _arrow),
    "csv": ((".csv",), _csv),
    "wide_csv": ((), _csv),
    "jsonl": ((".jsonl", ".ndjson", ".json"), _jsonl),
}
"""Format → suffixes and reader; ``wide_csv`` has one series per column."""
ENDINGS = tuple(ending for endings, _ in FORMATS.values() for ending in endings)


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
