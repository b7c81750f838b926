"""Read files of one format in batches of rows: Parquet, Arrow IPC, CSV, JSON lines."""

from __future__ import annotations

import contextlib
import csv
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankscope.errors import DataError
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


def open_parquet(file: Path, size: int | None, _: Collection[str]) -> Source:
    """Open a Parquet file."""
    import pyarrow.parquet as pq

    # Without a buffer, a whole row group is read at once; pandas writes up to a million rows per group.
    table = pq.ParquetFile(file, pre_buffer=False, buffer_size=PAGE)
    rows = table.metadata.num_rows
    done = [0]
    parts = (part for part in table.iter_batches(batch_size=size or max(1, rows), use_threads=False))
    return Source(file, "row", rows, _frames(parts, done), lambda: done[0] / max(1, rows))


def open_arrow(file: Path, size: int | None, _: Collection[str]) -> Source:
    """Open an Arrow IPC file, with or without a footer."""
    source, parts = arrow_batches(file, size)
    whole = file.stat().st_size
    return Source(file, "row", None, _frames(parts, [0]), lambda: source.tell() / whole)


def arrow_batches(file: Path, size: int | None) -> tuple[Any, Iterator[Any]]:
    """Open an Arrow file; return its stream, and validated record batches of at most ``size`` rows."""
    import pyarrow as pa

    source = pa.OSFile(str(file))  # a memory map would count towards resident memory
    try:
        reader = pa.ipc.open_file(source)
    except pa.ArrowInvalid:  # the streaming format, as written by `datasets`, has no footer
        source.seek(0)
        return source, _sliced(pa.ipc.open_stream(source), size)
    return source, _sliced((reader.get_batch(number) for number in range(reader.num_record_batches)), size)


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


def open_csv(file: Path, size: int | None, texts: Collection[str]) -> Source:
    """Open a CSV file; columns named in ``texts`` stay strings."""
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
            blank = _blank_lines(file, len(frame.columns)) if blank is None else blank
            bare &= np.isin(lines, blank)
        yield Rows(frame[~bare], lines[~bare], tuple(broken[:here]))
        del broken[:here]
    if broken:
        yield Rows(frame.iloc[:0], np.arange(0), tuple(broken))


def _blank_lines(file: Path, columns: int) -> list[int]:
    """Rows that are ignored, counted from 1: empty lines; of a single column, where one is a gap, those at the end."""
    blank: list[int] = []
    with file.open(encoding="utf-8", errors="replace", newline="") as text:
        for number, row in enumerate(csv.reader(text), start=1):
            if not row:
                blank.append(number)
            elif columns == 1:
                blank = []
    return blank


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


def open_jsonl(file: Path, size: int | None, _: Collection[str]) -> Source:
    """Open a file with one JSON object per line."""
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
