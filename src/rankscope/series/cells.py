"""Columns of cells that may be damaged, as numbers and as times."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from rankscope.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

STEPS = "steps"
"""Reading of a time column that counts steps in place of naming times."""
MOST_STEPS = 10_000_000
"""A whole number beyond it is no step: seconds since 1970 would be dated wrongly."""
LOOKED_AT = 20
"""Cells that tell what a column holds."""
SAMPLED = 10_000
"""Cells that a way of writing dates is tried on."""


def column_numbers(column: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Cells of a column as numbers, NaN where there is none; and where a cell is there that is no number.

    >>> import pandas as pd
    >>> values, wrong = column_numbers(pd.Series(["0.1", None, "x", " 2"], dtype=object))
    >>> values.tolist(), wrong.tolist()
    ([0.1, nan, nan, 2.0], [False, False, True, False])
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    wrong = np.zeros(len(column), dtype=bool)
    if column.dtype.kind in "fiu":
        return column.to_numpy(dtype=float, na_value=np.nan), wrong
    try:
        cells = pa.array(column, from_pandas=True)
        if not pa.types.is_boolean(cells.type):
            return pc.cast(cells, pa.float64()).to_numpy(zero_copy_only=False).copy(), wrong
    except (pa.ArrowException, OverflowError):
        pass  # cell by cell, to find which
    values = np.full(len(column), np.nan)
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


def mostly_numbers(column: pd.Series) -> bool:
    """True where most of the cells that are there are numbers, and where there is none."""
    if column.dtype.kind in "biufmM":
        return column.dtype.kind in "iuf"
    values, wrong = column_numbers(column)
    there = int((wrong | ~np.isnan(values)).sum())
    return 2 * int(wrong.sum()) < there or (not there and bool(column.isna().all()))


def way_of_writing(column: pd.Series, where: str) -> str:
    """How the times of a column are written: `STEPS`, or a format as `pandas.to_datetime` takes it.

    Raises:
        DataError: the day and the month could be either.
    """
    from pandas.tseries.api import guess_datetime_format

    if column.dtype.kind == "M" or (cells := column.dropna()).empty:
        return "ISO8601"
    if mostly_numbers(cells):
        numbers = column_numbers(cells)[0]
        numbers = numbers[~np.isnan(numbers)]
        for form, low, high in (("%Y", 1000, 3000), ("%Y%m%d", 10**7, 10**8 - 1)):
            if ((numbers >= low) & (numbers <= high)).all():
                return form
        return STEPS
    cells = cells.head(SAMPLED)
    if 2 * read_times(cells, "ISO8601").notna().sum() >= len(cells):
        return "ISO8601"
    texts = [cell for cell in cells.head(LOOKED_AT) if isinstance(cell, str)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        forms = [guess_datetime_format(text, dayfirst=first) for first in (False, True) for text in texts]
    tried = {form: read_times(cells, form) for form in dict.fromkeys(forms) if form}
    most = max((int(times.notna().sum()) for times in tried.values()), default=0)
    best = [form for form, times in tried.items() if most and times.notna().sum() == most]
    if any(not tried[form].equals(tried[best[0]]) for form in best):
        raise DataError(
            f"{where}: {texts[0]!r} in column {column.name!r} may begin with the day or the month: write ISO dates "
            "such as 2024-01-31."
        )
    return best[0] if best else "mixed"


def read_times(column: pd.Series, form: str) -> pd.DatetimeIndex:
    """Times of a column, NaT where a cell is none; steps count seconds from 1970. Time zones are dropped.

    Args:
        column: the cells.
        form: of `way_of_writing`.
    """
    import pandas as pd

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # unknown and mixed ways of writing warn
        if column.dtype.kind == "M":
            times = pd.DatetimeIndex(column)
        elif form == STEPS or form in ("%Y", "%Y%m%d"):
            numbers, _ = column_numbers(column)
            largest = MOST_STEPS if form == STEPS else 10**8
            whole = pd.Series(np.where(np.abs(numbers) < largest, numbers, 0.5)).astype("float64")
            whole = whole.where(whole % 1 == 0).astype("Int64")
            if form == STEPS:
                times = pd.DatetimeIndex(pd.to_datetime(whole, unit="s"))
            else:
                times = pd.DatetimeIndex(pd.to_datetime(whole.astype("string"), format=form, errors="coerce"))
        else:
            texts = column.where([not isinstance(cell, (bool, int, float, np.number)) for cell in column], None)
            found = pd.to_datetime(texts, format=form, errors="coerce")
            if found.dtype == object:  # several time zones
                naive = found.map(lambda time: time if pd.isna(time) else time.replace(tzinfo=None))
                found = pd.to_datetime(naive, errors="coerce")
            times = pd.DatetimeIndex(found)
    return times if times.tz is None else times.tz_localize(None)
