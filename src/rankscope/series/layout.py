"""Detect the layout of a table of series and parse its numbers and times."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from rankscope.errors import DataError, unknown_choice
from rankscope.series.formats import MISSING, Broken, Rows
from rankscope.series.frequency import infer_freq, period_freq

if TYPE_CHECKING:
    import pandas as pd

ID_NAMES = ("item_id", "unique_id", "series_id", "id", "series", "item")
TIME_NAMES = ("timestamp", "date", "datetime", "ds", "time", "start", "period", "month", "year")
TARGET_NAMES = ("target", "value", "y")
INDEX_NAMES = ("", "unnamed: 0", "__index_level_0__")
"""Names of unnamed columns, i.e. of an index written by pandas."""
EPOCH = "1970-01-01"
STEPS = "steps"
"""Format of a time column of step counts."""
MOST_STEPS = 10_000_000
"""Largest step count; larger integers may be Unix timestamps, which would be misread."""
LOOKED_AT = 20
"""Cells sampled to detect the type of a column."""
SAMPLED = 10_000
"""Cells sampled to detect a date format."""


@dataclass(frozen=True)
class Columns:
    """Column names; None searches ``ID_NAMES`` etc."""

    id: str | None = None
    time: str | None = None
    target: str | None = None

    @property
    def texts(self) -> set[str]:
        """Lower-case names of columns whose cells stay strings."""
        named = [name.lower() for name in (self.id, self.time) if name is not None]
        return {*ID_NAMES, *TIME_NAMES, *INDEX_NAMES, *named}


@dataclass(frozen=True)
class TableLayout:
    """Layout of a table of series.

    Attributes:
        form: ``list`` (one row per series, values in a list), ``long`` (one row per value, with an id column) or
            ``wide`` (one column per series).
        id: id column.
        time: time column.
        fields: value columns.
        freq: frequency of the series; in the list layout, None uses each row's own.
        grid: frequency for detecting gaps: ``freq``, or seconds for step counts.
        timestamp_format: see `timestamp_format`.
        inferred: True if ``grid`` was inferred from the times of one series, the first.
        zoned: True if times have a zone, which is dropped.
    """

    form: str
    id: Any | None
    time: Any | None
    fields: tuple[Any, ...]
    freq: str | None
    grid: str | None
    timestamp_format: str = "ISO8601"
    inferred: bool = False
    zoned: bool = False


def find_layout(
    frame: pd.DataFrame, where: str, columns: Columns, freq: str | None, *, wide: bool = False
) -> TableLayout:
    """Detect the layout of a table from its column names and cell types.

    Args:
        frame: table, or its first rows.
        where: prefix of error messages.
        columns: non-default column names.
        freq: frequency (default: inferred from the times).
        wide: require one column per series; numeric columns may have any name.

    Raises:
        DataError: a given column is missing, no column is numeric, or the layout or target column is ambiguous.
    """
    for role in ("id", "time", "target"):
        name = getattr(columns, role)
        if name is not None and name not in frame.columns:
            raise DataError(f"{where}: {unknown_choice(f'{role} column', name, map(str, frame.columns))}")
    freq = None if freq is None else period_freq(freq)
    objects = [column for column, kind in frame.dtypes.items() if kind.kind == "O"]
    lists = [column for column in objects if _holds_lists(frame[column])]
    time = columns.time or _find(frame.columns, TIME_NAMES)
    name = columns.id or (None if wide else _find((one for one in frame.columns if one not in lists), ID_NAMES))
    index = _find(frame.columns, INDEX_NAMES)
    if time is None and index is not None and _holds_dates(frame[index], where):
        time = index
    if time is None and not lists:  # a date beside a list may be that of its end
        time = _date_column(frame, {name, index}, where)
    special = (name, time, index)
    if lists:
        fields = [columns.target] if columns.target else [column for column in lists if column != time]
        fields = [field for field in fields if _lists_are_numeric(frame[field])]
        named = _find(fields, TARGET_NAMES)
        fields = fields if named is None else [named]  # the other lists are features, as in GluonTS
        if not fields:
            raise DataError(f"{where} has no list column of numbers; its columns are {_names(frame)}.")
        texts = time in objects and frame[time].map(lambda cell: isinstance(cell, str) or is_missing(cell)).all()
        form = timestamp_format(frame[time], where) if texts else "ISO8601"
        return TableLayout("list", name, time, tuple(fields), freq, freq, timestamp_format=form)
    numeric = [
        column
        for column, kind in frame.dtypes.items()
        if column not in special and (kind.kind in "iuf" or mostly_numbers(frame[column]))
    ]
    names = _find(frame.columns, ID_NAMES) if wide and name is None else None
    if names is not None and names not in numeric:
        raise DataError(f"{where} has series names in column {names!r}: it needs one column per series instead.")
    if columns.target is not None and columns.target not in numeric:
        raise DataError(f"{where}: target column {columns.target!r} is not numeric.")
    if not numeric:
        raise DataError(f"{where} has no numeric column; its columns are {_names(frame)}.")
    form = "ISO8601" if time is None else timestamp_format(frame[time], where)
    grid = None if form == STEPS else freq
    zoned = time is not None and _has_zone(frame[time])
    if name is None or name == time:
        fields = numeric if columns.target is None else [columns.target]
        others = [column for column in objects if column not in (*special, *numeric)]
        if time is None and (blocks := next((one for one in others if _in_blocks(frame[one])), None)) is not None:
            raise DataError(
                f"{where}: column {blocks!r} may hold the item ids of several series: name it (id_column, "
                "--id-column), or leave it out of the file."
            )
        return TableLayout("wide", None, time, tuple(fields), freq, grid, form, zoned=zoned)
    named = columns.target or next((one for one in TARGET_NAMES if one in numeric), None)
    if named is None and len(numeric) > 1:
        raise DataError(
            f"{where} has several numeric columns ({', '.join(map(str, numeric))}); name the target column "
            "(target_column, --target-column), or rename it to target."
        )
    return TableLayout("long", name, time, (named or numeric[0],), freq, grid, form, zoned=zoned)


def without_nameless(rows: Rows, layout: TableLayout) -> Rows:
    """Move rows of the long layout without an id, or with a list in its place, to the broken rows."""
    import pandas as pd

    if layout.form != "long" or not len(rows.frame):
        return rows
    ids = rows.frame[layout.id]
    nameless = ids.isna().to_numpy()
    if ids.dtype == object and pd.api.types.infer_dtype(ids).startswith("mixed"):
        nameless |= ids.map(lambda cell: isinstance(cell, (list, tuple, dict, np.ndarray))).to_numpy(dtype=bool)
    if not nameless.any():
        return rows
    reason = f"no name of a series in column {layout.id!r}"
    missing = [Broken(line, (), reason) for line in rows.lines[nameless].tolist()]
    broken = tuple(sorted([*rows.broken, *missing], key=lambda one: one.line))
    return Rows(rows.frame[~nameless], rows.lines[~nameless], broken, rows.number)


def refuse_late(rows: Rows, layout: TableLayout, first: Collection[Any], where: str) -> None:
    """Raise `DataError` where rows bring an id or a time that is not among the ``first`` columns, of the layout."""
    new = [column for column in rows.frame.columns if column not in first]
    for kind, column, names in (("an id", layout.id, ID_NAMES), ("a time", layout.time, TIME_NAMES)):
        late = None if column is not None else _find(new, names)
        if late is not None:
            line = rows.lines[int(rows.frame[late].notna().argmax())]
            raise DataError(f"{where} {line} has {kind}, {late!r}, which the first rows lack: write it in all rows.")


def with_grid(layout: TableLayout, rows: Rows) -> TableLayout:
    """Return the layout with the frequency inferred from the first series that allows it, if not given."""
    if layout.form == "list" or layout.time is None or layout.grid is not None or not len(rows.frame):
        return layout
    column = rows.frame[layout.time]
    for part in [slice(None)] if layout.form == "wide" else rows_by_name(rows.frame[layout.id]):
        found = infer_freq(read_times(column.iloc[part], layout.timestamp_format).dropna().unique().sort_values())
        if found is not None:
            steps = layout.timestamp_format == STEPS
            return replace(layout, grid=found, freq=layout.freq if steps else found, inferred=not steps)
    return layout


def rows_by_name(column: pd.Series) -> list[np.ndarray]:
    """Return the row indices of every id, in order of first appearance."""
    import pandas as pd

    codes = pd.factorize(column.map(str) if column.dtype.kind == "O" else column)[0]
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if len(order) else []


def is_missing(cell: Any) -> bool:
    """Return whether a scalar cell is missing: None, NaN or NaT."""
    return cell is None or (not isinstance(cell, (list, tuple, np.ndarray)) and bool(cell != cell))


def _find(columns: Iterable[Any], names: tuple[str, ...]) -> Any | None:
    lower = {str(column).lower(): column for column in reversed(list(columns))}
    return next((lower[name] for name in names if name in lower), None)


def _names(frame: pd.DataFrame) -> str:
    return ", ".join(map(str, frame.columns[:8]))


def _holds_dates(column: pd.Series, where: str) -> bool:
    form = timestamp_format(column, where)
    return form != STEPS and 2 * int(read_times(column, form).notna().sum()) > len(column)


def _date_column(frame: pd.DataFrame, taken: set[Any], where: str) -> Any | None:
    """Return the only column of dates, by its cells; numbers may be anything.

    Raises:
        DataError: several columns hold dates.
    """
    free = [column for column, kind in frame.dtypes.items() if kind.kind in "OM" and column not in taken]
    dates = [column for column in free if _begins_with_dates(frame[column], where)]
    if len(dates) > 1:
        raise DataError(
            f"{where}: columns {', '.join(map(str, dates))} hold dates; name that of the times (time_column, "
            "--time-column)."
        )
    return next(iter(dates), None)


def _begins_with_dates(column: pd.Series, where: str) -> bool:
    cells = column.dropna().head(LOOKED_AT)
    dates_or_text = len(cells) and all(isinstance(cell, (str, date)) for cell in cells)
    return bool(dates_or_text) and not mostly_numbers(cells) and _holds_dates(cells, where)


def _in_blocks(column: pd.Series) -> bool:
    """Return whether cells have several values, each in rows that follow one another, as ids of series do."""
    values = column.astype(str)
    blocks, kinds = int((values != values.shift()).sum()), values.nunique()
    return 1 < kinds == blocks < len(values)


def _has_zone(column: pd.Series) -> bool:
    if column.dtype.kind == "M":
        return getattr(column.dtype, "tz", None) is not None
    cell = next(iter(column.dropna()), None)
    return isinstance(cell, str) and re.search(r":\d.*(Z|[+-]\d\d:?\d\d)$", cell.strip()) is not None


def _holds_lists(column: pd.Series) -> bool:
    return any(isinstance(cell, (list, tuple, np.ndarray)) for cell in column.head(LOOKED_AT))


def _lists_are_numeric(column: pd.Series) -> bool:
    """Return whether most of the first lists are numeric; empty and damaged ones are reported later."""
    lists = (cell for cell in column if isinstance(cell, (list, tuple, np.ndarray)) and len(cell))
    kinds = [_is_numeric(cell) for cell in islice(lists, LOOKED_AT)]
    return 2 * sum(kinds) >= len(kinds)


def _is_numeric(cell: Any) -> bool:
    if isinstance(cell, np.ndarray) and cell.dtype.kind != "O":
        return cell.dtype.kind in "fiu"
    return all(value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)) for value in cell)


def column_numbers(column: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Convert a column to floats; return the values, NaN if missing or invalid, and a mask of invalid cells.

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
    except (pa.ArrowException, OverflowError, UnicodeError):
        pass  # fall back to single cells, to find the invalid ones
    values = np.full(len(column), np.nan)
    for place, cell in enumerate(column.tolist()):
        try:
            values[place] = _number(cell)
        except (TypeError, ValueError, OverflowError):
            wrong[place] = True
    return values, wrong


def _number(cell: Any) -> float:
    if cell is None or (isinstance(cell, str) and cell in MISSING):
        return np.nan
    if not isinstance(cell, (str, int, float, np.number)) or isinstance(cell, bool) or "_" in str(cell):
        raise ValueError(cell)  # Python would also accept one-element lists and 1_000
    return float(cell)


def mostly_numbers(column: pd.Series) -> bool:
    """Return whether most non-missing cells are numbers; True for an empty column."""
    if column.dtype.kind in "biufmM":
        return column.dtype.kind in "iuf"
    values, wrong = column_numbers(column)
    there = int((wrong | ~np.isnan(values)).sum())
    return 2 * int(wrong.sum()) < there or (not there and bool(column.isna().all()))


def timestamp_format(column: pd.Series, where: str) -> str:
    """Detect the time format of a column: `STEPS`, or a format of `pandas.to_datetime`.

    Raises:
        DataError: the order of day and month is ambiguous, or there are times of the day alone.
    """
    from pandas.tseries.api import guess_datetime_format

    if column.dtype.kind == "M" or (cells := column.dropna()).empty:
        return "ISO8601"
    if mostly_numbers(cells):
        numbers = column_numbers(cells)[0]
        numbers = numbers[~np.isnan(numbers)]
        for form, low, high in (("%Y", 1000, 3000), ("%Y%m", 100_001, 300_012), ("%Y%m%d", 10**7, 10**8 - 1)):
            months = form != "%Y%m" or ((numbers % 100 >= 1) & (numbers % 100 <= 12)).all()
            if months and ((numbers >= low) & (numbers <= high)).all():
                return form
        return STEPS
    cells = cells.head(SAMPLED)
    if all(isinstance(cell, str) and re.match(r"\s*\d{1,2}:\d\d", cell) for cell in cells.head(LOOKED_AT)):
        raise DataError(
            f"{where}: {cells.iloc[0]!r} in column {column.name!r} has no date: write ISO dates and times such as "
            "2024-01-31 13:00."
        )
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
    """Parse the times of a column, NaT if invalid; step counts become seconds since 1970. Time zones are dropped.

    Args:
        column: cells.
        form: result of `timestamp_format`.
    """
    import pandas as pd

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # unknown and mixed formats warn
        if column.dtype.kind == "M":
            times = pd.DatetimeIndex(column)
        elif form == STEPS or form in ("%Y", "%Y%m", "%Y%m%d"):
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
            texts = texts.map(lambda cell: cell.replace(tzinfo=None) if isinstance(cell, datetime) else cell)
            found = pd.to_datetime(texts, format=form, errors="coerce")
            if found.dtype == object:  # several time zones
                naive = found.map(lambda time: time if pd.isna(time) else time.replace(tzinfo=None))
                found = pd.to_datetime(naive, errors="coerce")
            times = pd.DatetimeIndex(found)
    return times if times.tz is None else times.tz_localize(None)
