"""Files of series as tables of rows, whole or a batch at a time: Parquet, Arrow IPC, CSV and JSON lines."""

from __future__ import annotations

import contextlib
import csv
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankscope.errors import DataError, unknown_choice

if TYPE_CHECKING:
    import pandas as pd

CSV_BLOCK = 1 << 20
"""Bytes of a CSV that are parsed at a time; a file that is read whole is one block."""
LARGEST_BLOCK = 1 << 30
PAGE = 1 << 20
"""Bytes of a Parquet column that are read at a time."""


@dataclass(frozen=True)
class Broken:
    """A row that could not even be taken apart: its number, its cells as far as they go, and what is wrong."""

    line: int
    cells: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Rows:
    """Some rows in the order of the file, their numbers from 1, the broken ones among them, and their chunk."""

    frame: pd.DataFrame
    lines: np.ndarray
    broken: tuple[Broken, ...] = ()
    number: int = 0


@dataclass(frozen=True)
class Source:
    """An open file.

    Attributes:
        path: the file.
        unit: what its rows are called in errors: ``row`` of a table, ``line`` of a text.
        rows: how many there are, where the file says so.
        batches: its rows; can be gone through once.
        share: tells how much of it was read, from 0 to 1.
    """

    path: Path
    unit: str
    rows: int | None
    batches: Iterator[Rows]
    share: Callable[[], float]


def open_file(path: str | Path, size: int | None, *, format: str | None = None, texts: Collection[str] = ()) -> Source:
    """Open a file of series.

    Args:
        path: the file.
        size: rows that are read at a time, at most (a CSV: some thousands); None reads as many as it can.
        format: one of `FORMATS`, where the file's ending does not tell it.
        texts: columns of a CSV, in lower case, whose cells stay texts even where they look like numbers.

    Raises:
        DataError: the file is missing, of no known format, or damaged; also while its rows are read.
    """
    file = Path(path)
    if not file.is_file():
        raise DataError(f"data file {file} does not exist.")
    name = file_format(file) if format is None else format
    if name not in FORMATS:
        raise DataError(unknown_choice("format", name, FORMATS))
    if file.stat().st_size == 0:
        raise DataError(f"{file}: the file is empty.")
    with _named(file, name, [0]):
        source = FORMATS[name][1](file, size, texts)
    seen = [0]
    return Source(file, source.unit, source.rows, _guarded(source.batches, file, name, seen), source.share)


def file_format(path: Path) -> str:
    """Name of the format that a file's ending stands for.

    Raises:
        DataError: it stands for none.
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
    """Name the file, and the last good row, where a parser fails; each has its own family of errors."""
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

    # Without a buffer a whole row group is read at once, and pandas writes a million rows into one.
    table = pq.ParquetFile(file, pre_buffer=False, buffer_size=PAGE)
    rows = table.metadata.num_rows
    done = [0]
    parts = (part for part in table.iter_batches(batch_size=size or max(1, rows), use_threads=False))
    return Source(file, "row", rows, _frames(parts, done), lambda: done[0] / max(1, rows))


def _arrow(file: Path, size: int | None, _: Collection[str]) -> Source:
    import pyarrow as pa

    source = pa.OSFile(str(file))  # a memory map would count what was read as resident
    try:
        reader = pa.ipc.open_file(source)
    except pa.ArrowInvalid:  # the streaming form, which `datasets` writes, has no footer
        source.seek(0)
        parts: Iterable[Any] = pa.ipc.open_stream(source)
    else:
        parts = (reader.get_batch(number) for number in range(reader.num_record_batches))
    whole = file.stat().st_size
    return Source(file, "row", None, _frames(_sliced(parts, size), [0]), lambda: source.tell() / whole)


def _sliced(parts: Iterable[Any], size: int | None) -> Iterator[Any]:
    for part in parts:
        step = size or max(1, part.num_rows)
        for first in range(0, part.num_rows, step):
            yield part.slice(first, step)


def _frames(parts: Iterable[Any], done: list[int]) -> Iterator[Rows]:
    """Tables of record batches; whole numbers stay such beside nulls."""
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
    source = pa.OSFile(str(file))
    whole = file.stat().st_size
    block = CSV_BLOCK if size is not None else min(LARGEST_BLOCK, max(CSV_BLOCK, whole + 1))
    reader = pc.open_csv(
        source,
        read_options=pc.ReadOptions(use_threads=False, block_size=block),
        parse_options=pc.ParseOptions(invalid_row_handler=note, ignore_empty_lines=False),
        convert_options=pc.ConvertOptions(
            column_types={name: pa.string() for name in header},  # a cell that is no number must not end the reading
            strings_can_be_null=True,
            null_values=[*pc.ConvertOptions().null_values, "None", "<NA>"],
        ),
    )
    return Source(file, "line", None, _csv_frames(file, reader, broken, texts), lambda: source.tell() / whole)


def _csv_frames(file: Path, reader: Any, broken: list[Broken], texts: Collection[str]) -> Iterator[Rows]:
    """Tables of a CSV; ``broken`` is filled while blocks are parsed, and emptied here."""
    line = 2  # the first below the header
    blank: list[int] = []
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
        if bare.any():  # an empty line is nothing, a line of commas a step without values
            blank = blank or [n for n, text in enumerate(file.open("rb"), start=1) if not text.strip()]
            bare &= np.isin(lines, blank)
        yield Rows(frame[~bare], lines[~bare], tuple(broken[:here]))
        del broken[:here]
    if broken:
        yield Rows(frame.iloc[:0], np.arange(0), tuple(broken))


def _with_numbers(part: Any, texts: Collection[str]) -> Any:
    """The columns as numbers in which every cell is one; names and times stay as they are written."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = []
    for name, column in zip(part.schema.names, part.columns, strict=True):
        if name.lower() not in texts:
            with contextlib.suppress(pa.ArrowInvalid):
                column = pc.cast(column, pa.float64())
        columns.append(column)
    return pa.table(columns, names=part.schema.names)


def _jsonl(file: Path, size: int | None, _: Collection[str]) -> Source:
    source = file.open("rb")
    whole = file.stat().st_size
    return Source(
        file, "line", None, _json_frames(source, size), lambda: 1.0 if source.closed else source.tell() / whole
    )


def _json_frames(source: Any, size: int | None) -> Iterator[Rows]:
    import pandas as pd

    columns: list[str] = []
    first = 1
    while texts := list(islice(iter(source.readline, b""), size)):
        rows, lines, broken = [], [], []
        for number, text in enumerate(texts, start=first):
            if not text.strip():
                continue
            try:
                row = json.loads(text)
            except json.JSONDecodeError as error:
                broken.append(Broken(number, (), f"no JSON: {error.msg} at column {error.colno}"))
                continue
            except UnicodeDecodeError:
                broken.append(Broken(number, (), "no UTF-8"))
                continue
            if isinstance(row, dict):
                rows.append(row)
                lines.append(number)
            else:
                broken.append(Broken(number, (), 'no object such as {"item_id": …, "target": […]}'))
        first += len(texts)
        columns = columns or list(dict.fromkeys(key for row in rows for key in row))
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
"""Endings of every format, and how it is opened; ``wide_csv`` has a series in every column."""
ENDINGS = tuple(ending for endings, _ in FORMATS.values() for ending in endings)


def joined(batches: Sequence[Rows], number: int = 0) -> Rows:
    """Batches as one, which is chunk ``number``."""
    import pandas as pd

    broken = tuple(one for batch in batches for one in batch.broken)
    there = [one for one in batches if len(one.frame)] or batches[:1]
    frame, lines = there[0].frame, there[0].lines
    if len(there) > 1:
        frame = pd.concat([one.frame for one in there], ignore_index=True)
        lines = np.concatenate([one.lines for one in there])
    return Rows(frame, lines, broken, number)
