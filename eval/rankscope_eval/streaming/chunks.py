"""A file of series as chunks of a fixed number of series, whatever blocks the file is written in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankscope.errors import DataError
from rankscope_eval.layouts import Columns, ListLayout, LongLayout, common_freq, find_layout, is_missing
from rankscope_eval.streaming.batches import Batch, Broken, Source, open_batches
from rankscope_eval.streaming.cells import column_numbers, column_stamps, stretches
from rankscope_eval.streaming.seen import SeenIds

if TYPE_CHECKING:
    import pandas as pd

ROWS = 1 << 16
"""Most rows that are read at a time."""


@dataclass(frozen=True)
class Chunk:
    """The rows of some series, not yet looked at; ``lines`` are their numbers in the file."""

    number: int
    frame: pd.DataFrame
    lines: np.ndarray
    broken: tuple[Broken, ...]


@dataclass(frozen=True)
class Stream:
    """A file of series that is read in chunks.

    Attributes:
        source: the open file.
        layout: where names, times and values stand.
        chunks: can be gone through once; reading is all that they cost.
        series: how many there are, where the file says so.
    """

    source: Source
    layout: ListLayout | LongLayout
    chunks: Iterator[Chunk]
    series: int | None


def open_stream(path: str | Path, size: int, *, columns: Columns | None = None, freq: str | None = None) -> Stream:
    """Open a file of series, in the list layout or in the long one with the rows of a series one after the other.

    Chunk n holds series n·size to (n+1)·size − 1 in the order of the file, whatever blocks it is written in, so that
    a run that was stopped finds the same chunks again. A series is held whole in memory, a file never.

    Args:
        path: Parquet, Arrow IPC (file or stream), CSV or JSON lines.
        size: series per chunk, or rows where a row holds several.
        columns: names of the id, time and target columns, where they are not the usual ones.
        freq: frequency, where the first chunk does not tell it.

    Raises:
        DataError: the file cannot be read, or is in the wide layout; while it is read, that it is damaged from some
            row on, or that a series comes back after others.
    """
    source = open_batches(path, min(size, ROWS))
    passed: list[Batch] = []
    for batch in source.batches:
        passed.append(batch)
        if len(batch.frame):
            break
    else:
        broken = next((one for batch in passed for one in batch.broken), None)
        what = f": {source.unit} {broken.line} has {broken.reason}" if broken else ": it holds no rows"
        raise DataError(f"{path} holds no series{what}.")
    layout = find_layout(_sample(passed[-1].frame), str(path), columns or Columns(), freq)
    if layout is None:
        raise DataError(
            f"{path} has one column per series and has to be read whole: let --out name a file, or write one row per "
            "series (with a list) or per value (with a column of series names)."
        )
    chunks = _chunks(source, chain(passed, source.batches), layout, size)
    known = source.rows * len(layout.fields) if isinstance(layout, ListLayout) and source.rows is not None else None
    if isinstance(layout, LongLayout) and layout.time is not None and layout.freq is None:
        first = next(chunks)
        layout = replace(layout, freq=_first_freq(first, layout, source))
        chunks = chain([first], chunks)
    return Stream(source, layout, chunks, known)


def _sample(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with texts as numbers where most of a column are such; what is damaged is found row by row later."""
    frame = frame.copy()
    for name in frame.columns:
        if frame[name].dtype.kind not in "biufM":
            values, wrong = column_numbers(frame[name])
            there = int((wrong | ~np.isnan(values)).sum())
            if 2 * int(wrong.sum()) < there or (not there and frame[name].isna().all()):
                frame[name] = values
    return frame


def _first_freq(chunk: Chunk, layout: LongLayout, source: Source) -> str:
    """Frequency of the first series of the first chunk that tells one."""

    def stamps() -> Iterator[pd.DatetimeIndex]:
        for begin, end in stretches(chunk.frame[layout.id].to_numpy(dtype=object)):
            try:
                yield column_stamps(chunk.frame[layout.time].iloc[begin:end], "")
            except DataError:
                continue  # named when it is its turn

    freq = common_freq(stamps())
    if freq is None:
        raise DataError(
            f"{source.path}: the frequency cannot be told from column {layout.time!r} of the first chunk; "
            "give freq (--freq)."
        )
    return freq


def _chunks(source: Source, batches: Iterator[Batch], layout: ListLayout | LongLayout, size: int) -> Iterator[Chunk]:
    """Cut the rows before every series that would be one too many."""
    held: list[Batch] = []
    broken: list[Broken] = []
    number = count = 0
    last: Any = None
    names = _Names(source, layout)
    for whole in batches:
        batch = _with_names(whole, layout)
        broken += batch.broken
        if not len(batch.frame):
            continue
        starts = np.arange(len(batch.frame))
        if isinstance(layout, LongLayout):
            ids = batch.frame[layout.id].to_numpy(dtype=object)
            starts = np.array([begin for begin, _ in stretches(ids) if begin or ids[0] != last], dtype=int)
            last = ids[-1]
        begin = 0
        for place in starts[size - count :: size].tolist():
            held.append(_part(batch, begin, place))
            before = [one for one in broken if one.line < batch.lines[place]]
            yield names.checked(Chunk(number, *_joined(held), tuple(before)))
            held, broken = [], broken[len(before) :]
            number, begin = number + 1, place
        held.append(_part(batch, begin, len(batch.frame)))
        count = (count + len(starts) - 1) % size + 1 if len(starts) else count
    if held or broken:
        yield names.checked(Chunk(number, *_joined(held or [_part(whole, 0, 0)]), tuple(broken)))


def _part(batch: Batch, begin: int, end: int) -> Batch:
    return Batch(batch.frame.iloc[begin:end], batch.lines[begin:end])


def _joined(held: list[Batch]) -> tuple[pd.DataFrame, np.ndarray]:
    import pandas as pd

    there = [one for one in held if len(one.frame)] or held[:1]
    if len(there) == 1:
        return there[0].frame, there[0].lines
    return pd.concat([one.frame for one in there], ignore_index=True), np.concatenate([one.lines for one in there])


def _with_names(batch: Batch, layout: ListLayout | LongLayout) -> Batch:
    """The batch without rows of the long layout that belong to no series: those are broken ones."""
    if not isinstance(layout, LongLayout):
        return batch
    nameless = batch.frame[layout.id].isna().to_numpy()
    if not nameless.any():
        return batch
    reason = f"no name of a series in column {layout.id!r}"
    missing = [Broken(line, (), reason) for line in batch.lines[nameless].tolist()]
    broken = tuple(sorted([*batch.broken, *missing], key=lambda one: one.line))
    return Batch(batch.frame[~nameless], batch.lines[~nameless], broken)


class _Names:
    """Finds names that come twice: in the list layout a damaged row, in the long one a file that is not sorted."""

    def __init__(self, source: Source, layout: ListLayout | LongLayout) -> None:
        self._source, self._layout, self._seen = source, layout, SeenIds()

    def checked(self, chunk: Chunk) -> Chunk:
        """The chunk without rows whose name was there.

        Raises:
            DataError: rows of a series stand in two places of the long layout.
        """
        layout = self._layout
        if layout.id is None or not len(chunk.frame):
            return chunk
        ids = chunk.frame[layout.id].to_numpy(dtype=object)
        if isinstance(layout, LongLayout):
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
