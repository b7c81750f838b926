"""Stream a file of series in chunks of a fixed number of series."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.errors import DataError
from rankscope.series.files import joined, open_file
from rankscope.series.formats import Broken, Rows, Source
from rankscope.series.layout import (
    Columns,
    TableLayout,
    find_layout,
    is_missing,
    refuse_late,
    with_grid,
    without_nameless,
)
from rankscope.series.reader import no_rows

ROWS = 1 << 16
"""Maximum rows per read."""


@dataclass(frozen=True)
class Stream:
    """File of series, read in chunks.

    Attributes:
        source: open file.
        layout: layout of the table.
        chunks: chunks of rows, read lazily; can be iterated once.
        series: number of series, if stored in the file.
    """

    source: Source
    layout: TableLayout
    chunks: Iterator[Rows]
    series: int | None


def open_stream(path: str | Path, size: int, *, columns: Columns | None = None, freq: str | None = None) -> Stream:
    """Open a file of series in the list layout, or in the long layout with contiguous series.

    Chunk n holds series n·size to (n+1)·size − 1 in file order, regardless of the file's block structure, so that a
    resumed run finds the same chunks. Memory use is bounded by the chunk, not by the file.

    Args:
        path: Parquet, Arrow IPC (file or stream), CSV or JSON lines.
        size: series per chunk, or rows if a row holds several series.
        columns: non-default names of the id, time and target columns.
        freq: frequency (default: inferred from the first chunk).

    Raises:
        DataError: the file is unreadable or in the wide layout; during iteration: the file is damaged, or the rows of
            a series are not contiguous.
    """
    names = columns or Columns()
    source = open_file(path, min(size, ROWS), texts=names.texts)
    passed: list[Rows] = []
    for batch in source.batches:
        passed.append(batch)
        if len(batch.frame):
            break
    else:
        raise no_rows(source, passed)
    first = passed[-1].frame.columns
    layout = find_layout(passed[-1].frame, str(path), names, freq)
    if layout.form == "wide":
        raise DataError(
            f"{path} has one column per series and has to be read whole: let --out name a file, or write one row per "
            "series (with a list) or per value (with a column of series names)."
        )
    if layout.form == "long" and size < ROWS:  # a row is one value, not a series
        source, passed = open_file(path, ROWS, texts=names.texts), []
    chunks = _chunks(source, chain(passed, source.batches), layout, first, size)
    known = source.rows * len(layout.fields) if layout.form == "list" and source.rows is not None else None
    if layout.form == "long" and layout.grid is None:
        chunk = next(chunks)
        layout = with_grid(layout, chunk)
        if layout.freq is None:
            what = "column " + repr(layout.time) + " of the first chunk" if layout.time is not None else "any column"
            raise DataError(f"{path}: the frequency cannot be told from {what}; give freq (--freq).")
        chunks = chain([chunk], chunks)
    return Stream(source, layout, chunks, known)


def _chunks(
    source: Source, batches: Iterator[Rows], layout: TableLayout, first: Collection[Any], size: int
) -> Iterator[Rows]:
    """Split rows into chunks of ``size`` complete series; a broken row goes with the series that it names.

    The layout was found by rows with the ``first`` columns.
    """
    held: list[Rows] = []
    broken: list[Broken] = []
    number = count = column = 0
    last: Any = None
    names = _Names(source, layout)
    for whole in batches:
        refuse_late(whole, layout, first, f"{source.path}: {source.unit}")
        batch = without_nameless(whole, layout)
        broken += batch.broken
        if not len(batch.frame):
            continue
        starts = np.arange(len(batch.frame))
        if layout.form == "long":
            ids = batch.frame[layout.id].to_numpy(dtype=object)
            column = list(batch.frame.columns).index(layout.id)
            starts = np.array([begin for begin, _ in stretches(ids) if begin or ids[0] != last], dtype=int)
            last = ids[-1]
        begin = 0
        for place in starts[size - count :: size].tolist():
            held.append(Rows(batch.frame.iloc[begin:place], batch.lines[begin:place]))
            following = (str(ids[place]),) if layout.form == "long" else None
            own: list[Broken] = []
            later: list[Broken] = []
            for one in broken:
                waits = one.line > batch.lines[place] or one.cells[column : column + 1] == following
                (later if waits else own).append(one)
            yield names.checked(replace(_take(held, source.path, number), broken=tuple(own)))
            broken = later
            number, begin = number + 1, place
        held.append(Rows(batch.frame.iloc[begin:], batch.lines[begin:]))
        count = (count + len(starts) - 1) % size + 1 if len(starts) else count
    if held or broken:
        held = held or [Rows(whole.frame.iloc[:0], whole.lines[:0])]
        yield names.checked(replace(_take(held, source.path, number), broken=tuple(broken)))


def _take(held: list[Rows], path: Path, number: int) -> Rows:
    """Join the parts of a chunk and let go of them: one series may be all of the file."""
    chunk = joined(held, path, number)
    held.clear()
    return chunk


class _Names:
    """Detector of repeated ids: an invalid row in the list layout, an unsorted file in the long layout."""

    def __init__(self, source: Source, layout: TableLayout) -> None:
        self._source, self._layout, self._seen = source, layout, SeenIds()

    def checked(self, chunk: Rows) -> Rows:
        """Move rows with a repeated id to the broken rows.

        Raises:
            DataError: rows of a series are not contiguous in the long layout.
        """
        layout = self._layout
        if layout.id is None or not len(chunk.frame):
            return chunk
        ids = chunk.frame[layout.id].to_numpy(dtype=object)
        if layout.form == "long":
            begins = [begin for begin, _ in stretches(ids)]
            again = self._seen.repeated([str(ids[begin]) for begin in begins])
            if again.any():
                begin = begins[int(again.argmax())]
                raise DataError(
                    f"{self._source.path}: {self._source.unit} {chunk.lines[begin]}: series {str(ids[begin])!r} comes "
                    f"back after other series: sort the file by {layout.id}."
                )
            return chunk
        there = np.array([not is_missing(name) for name in ids])
        again = np.zeros(len(ids), dtype=bool)
        again[there] = self._seen.repeated([str(name) for name in ids[there]])
        if not again.any():
            return chunk
        twice = [
            Broken(line, (str(name),), f"an item id, {str(name)!r}, that was there before; ids have to be unique")
            for line, name in zip(chunk.lines[again].tolist(), ids[again], strict=True)
        ]
        broken = (*chunk.broken, *twice)
        return replace(chunk, frame=chunk.frame[~again], lines=chunk.lines[~again], broken=broken)


def stretches(ids: np.ndarray) -> list[tuple[int, int]]:
    """Return (start, stop) of every run of equal ids.

    >>> stretches(np.array(["a", "a", "b"], dtype=object))
    [(0, 2), (2, 3)]
    """
    if not len(ids):
        return []
    starts = [0, *(np.flatnonzero(ids[1:] != ids[:-1]) + 1).tolist()]
    return list(zip(starts, [*starts[1:], len(ids)], strict=True))


class SeenIds:
    """Growing set of ids, stored as 64-bit hashes in sorted arrays.

    A million ids take 8 MB, against 100 MB as a set of strings. The probability of a collision is 3·10⁻⁸ for a million
    ids and 3·10⁻⁴ for a hundred million.
    """

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []

    def repeated(self, ids: Sequence[str]) -> np.ndarray:
        """Add ids; return a mask of those seen before, in this call or an earlier one."""
        import pandas as pd

        hashes = pd.util.hash_array(np.array(ids, dtype=object), categorize=False)
        found = np.ones(len(hashes), dtype=bool)
        found[np.unique(hashes, return_index=True)[1]] = False
        for run in self._runs:
            places = np.minimum(np.searchsorted(run, hashes), len(run) - 1)
            found |= run[places] == hashes
        if not found.all():
            self._runs.append(np.sort(hashes[~found]))
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            last = self._runs.pop()
            self._runs[-1] = np.sort(np.concatenate([self._runs[-1], last]))
        return found
