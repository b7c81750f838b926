"""Columns of cells that may be damaged: names, times and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rankscope.errors import DataError
from rankscope_eval.layouts import timestamps

if TYPE_CHECKING:
    import pandas as pd


def stretches(ids: np.ndarray) -> list[tuple[int, int]]:
    """First and last-plus-one row of every stretch of equal names.

    >>> stretches(np.array(["a", "a", "b"], dtype=object))
    [(0, 2), (2, 3)]
    """
    if not len(ids):
        return []
    starts = [0, *(np.flatnonzero(ids[1:] != ids[:-1]) + 1).tolist()]
    return list(zip(starts, [*starts[1:], len(ids)], strict=True))


def column_stamps(column: pd.Series, where: str) -> pd.DatetimeIndex:
    """Times of a column.

    Raises:
        DataError: a cell is no date.
    """
    import pandas as pd

    if column.dtype.kind == "M" and not column.isna().any():
        found = pd.DatetimeIndex(column)
        return found.tz_localize(None) if found.tz is not None else found
    return timestamps(column.tolist(), where)


def first_undated(column: pd.Series) -> int:
    """Place of the first cell that is no date; 0 where each is one by itself."""
    for place, cell in enumerate(column.tolist()):
        try:
            timestamps([cell], "")
        except DataError:
            return place
    return 0


def column_numbers(column: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Cells of a column as numbers, NaN where there is none; and where a cell is there that is no number.

    >>> import pandas as pd
    >>> values, wrong = column_numbers(pd.Series(["0.1", None, "x", " 2"], dtype=object))
    >>> values.tolist(), wrong.tolist()
    ([0.1, nan, nan, 2.0], [False, False, True, False])
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    right = np.zeros(len(column), dtype=bool)
    if column.dtype.kind in "fiu":
        return column.to_numpy(dtype=float, na_value=np.nan), right
    try:
        texts = pa.array(column, type=pa.string())
        return pc.cast(texts, pa.float64()).to_numpy(zero_copy_only=False), right
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        pass  # cell by cell, to find which
    values, wrong = np.full(len(column), np.nan), right
    for place, cell in enumerate(column.tolist()):
        try:
            values[place] = _number(cell)
        except (TypeError, ValueError):
            wrong[place] = True
    return values, wrong


def _number(cell: Any) -> float:
    if cell is None:
        return np.nan
    if not isinstance(cell, (str, int, float, np.number)) or isinstance(cell, bool) or "_" in str(cell):
        raise ValueError(cell)  # also a list of one number, and 1_000, both of which Python takes
    return float(cell)
