"""Files of series, read whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from rankscope.errors import DataError
from rankscope.series.assembly import to_series
from rankscope.series.files import Rows, Source, open_file
from rankscope.series.layout import Columns, find_layout, with_grid, without_nameless
from rankscope.series.record import Series, check_series


def read_series(
    path: str | Path,
    *,
    format: str | None = None,
    freq: str | None = None,
    columns: Columns | None = None,
    numbers: bool = True,
    dated: bool = True,
    ignore_times: bool = False,
) -> list[Series]:
    """Every series of a file, by the rules of `rankscope.series`.

    Args:
        path: the file.
        format: ``parquet``, ``arrow``, ``csv``, ``wide_csv`` or ``jsonl``; else the file's ending decides.
        freq: frequency, where the file neither states it nor has timestamps to tell it from.
        columns: names of the id, time and target columns, where they are not the usual ones.
        numbers: refuse a series without any number.
        dated: refuse a series without a frequency.
        ignore_times: take the rows as they stand, one step each; their times tell the frequency alone.

    Raises:
        DataError: the file is missing, unreadable or holds no usable series.
    """
    names = columns or Columns()
    source = open_file(path, None, format=format, texts=names.texts)
    batches = list(source.batches)
    if not any(len(batch.frame) for batch in batches):
        raise no_rows(source, batches)
    rows = joined(batches)
    wide = format == "wide_csv" and names.id is None
    layout = find_layout(rows.frame, str(path), names, freq, wide=wide)
    layout = with_grid(layout, rows)
    layout = replace(layout, time=None) if ignore_times else layout
    series, bad = to_series(without_nameless(rows, layout), layout, str(path), source.unit, dated=dated)
    if bad:
        raise DataError(bad[0].reason)
    check_series(series, str(path), numbers=numbers, dated=dated)
    return series


def no_rows(source: Source, batches: Sequence[Rows]) -> DataError:
    """The error of a file in which no row is whole."""
    broken = next((one for batch in batches for one in batch.broken), None)
    what = f"{source.unit} {broken.line} has {broken.reason}" if broken else "it holds no rows"
    return DataError(f"{source.path} holds no series: {what}.")


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
