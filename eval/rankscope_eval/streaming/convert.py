"""From the rows of a chunk to series, one by one, so that a damaged row costs no other series."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rankscope.errors import DataError
from rankscope_eval.layouts import ListLayout, LongLayout
from rankscope_eval.series import Series, check_values
from rankscope_eval.streaming.cells import column_numbers, column_stamps, first_undated, stretches
from rankscope_eval.streaming.chunks import Chunk

if TYPE_CHECKING:
    import pandas as pd

LARGEST = float(np.finfo(np.float32).max)
"""Models compute in single precision: what lies beyond becomes infinite there."""


@dataclass(frozen=True)
class BadRow:
    """A row that no series can be made of: its number, the name of its series if it has one, what is wrong."""

    line: int
    item_id: str
    reason: str


def to_series(chunk: Chunk, layout: ListLayout | LongLayout, path: str, unit: str) -> tuple[list[Series], list[BadRow]]:
    """Make the series of a chunk, and name the rows that none could be made of.

    In the long layout a damaged row costs its series: a forecast from a history with a hole that the file does not have
    would be another one, and nothing would show it.

    Args:
        chunk: some rows.
        layout: where names, times and values stand.
        path: of the file, for errors.
        unit: what its rows are called.
    """
    where = f"{path}: {unit}"
    place = list(chunk.frame.columns).index(layout.id) if isinstance(layout, LongLayout) else 0
    bad = []
    for one in chunk.broken:
        name = one.cells[place] if place < len(one.cells) else ""
        bad.append(BadRow(one.line, name, f"{where} {one.line} has {one.reason}."))
    if isinstance(layout, ListLayout):
        found = list(_from_lists(chunk, layout, where))
    else:
        found = list(_from_long(chunk, layout, where, {one.item_id for one in bad if one.item_id}))
    bad += [one for one in found if isinstance(one, BadRow)]
    return [one for one in found if isinstance(one, Series)], sorted(bad, key=lambda one: one.line)


def _from_lists(chunk: Chunk, layout: ListLayout, where: str) -> Iterator[Series | BadRow]:
    for line, record in zip(chunk.lines.tolist(), chunk.frame.to_dict("records"), strict=True):
        try:
            series = layout.series(record, line - 1, f"{where} {line}")
            for one in series:
                _check(one, f"{where} {line}")
        except DataError as error:
            name = "" if layout.id is None or record[layout.id] is None else str(record[layout.id])
            yield BadRow(line, name, str(error))
        else:
            yield from series


def _from_long(chunk: Chunk, layout: LongLayout, where: str, torn: set[str]) -> Iterator[Series | BadRow]:
    """Series of the long layout but for those of a torn row, which is named already."""
    frame = chunk.frame
    values, wrong = column_numbers(frame[layout.target])
    stamps = _all_stamps(frame, layout)
    names = frame[layout.id].to_numpy(dtype=object)
    for begin, end in stretches(names):
        key, line = str(names[begin]), int(chunk.lines[begin])
        if key in torn:
            continue
        try:
            if wrong[begin:end].any():
                place = begin + int(wrong[begin:end].argmax())
                line = int(chunk.lines[place])
                cell = frame[layout.target].iloc[place]
                raise DataError(f"{where} {line}: {cell!r} in series {key!r} is not a number.")
            times = None if stamps is None else stamps[begin:end]
            if stamps is None and layout.time is not None:
                column = frame[layout.time].iloc[begin:end]
                line = int(chunk.lines[begin + first_undated(column)])
                times = column_stamps(column, f"{where} {line}: series {key!r}")
            one = layout.series(key, times, values[begin:end].copy(), f"{where} {line}")
            _check(one, f"{where} {line}")
        except DataError as error:
            yield BadRow(line, key, str(error))
        else:
            yield one


def _all_stamps(frame: pd.DataFrame, layout: LongLayout) -> pd.DatetimeIndex | None:
    """Times of all rows at once, which is much faster; None where there are none, or one is no date."""
    if layout.time is None:
        return None
    try:
        return column_stamps(frame[layout.time], "")
    except DataError:
        return None


def _check(one: Series, where: str) -> None:
    """Refuse what no model can be given; a series without any number is none of that.

    Raises:
        DataError: the series is empty, or has a value beyond single precision.
    """
    check_values(one, where)
    size = np.abs(one.target)
    if np.nanmax(size, initial=0.0) > LARGEST:
        value = one.target[int(np.nanargmax(size))]
        raise DataError(f"{where}: series {one.item_id!r} holds {value:g}, which is beyond single precision.")
