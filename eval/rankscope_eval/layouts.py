"""Tables of series: which columns hold names, times and values, and how each layout becomes series."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from rankscope.errors import DataError, unknown_choice
from rankscope_eval.series import Series, infer_freq, period, period_freq

if TYPE_CHECKING:
    import pandas as pd

ID_NAMES = ("item_id", "unique_id", "series_id", "id", "series", "item")
TIME_NAMES = ("timestamp", "date", "datetime", "ds", "time", "start", "period", "month", "year")
TARGET_NAMES = ("target", "value", "y")
EPOCH = "1970-01-01"
LOOKED_AT = 20
"""Cells that tell what a column holds."""


@dataclass(frozen=True)
class Columns:
    """Names of the columns that matter; None means: find it among ``ID_NAMES`` and so on."""

    id: str | None = None
    time: str | None = None
    target: str | None = None


@dataclass(frozen=True)
class ListLayout:
    """One row per series; a second list column of numbers is a second series of that row."""

    id: Any | None
    time: Any | None
    fields: tuple[Any, ...]
    freq: str | None

    def series(self, record: Mapping[Any, Any], row: int, where: str) -> list[Series]:
        """Series of one row.

        Args:
            record: its cells by column.
            row: its number from 0, which names a series that has no id.
            where: what an error begins with.

        Raises:
            DataError: the row has no id, date, frequency or list of numbers.
        """
        if self.id is not None and is_missing(record[self.id]):
            raise DataError(f"{where}: column {self.id!r} has an empty item id.")
        base = str(record[self.id]) if self.id is not None else f"T{row}"
        stamps: Any = record[self.time] if self.time is not None else EPOCH
        many = isinstance(stamps, (list, tuple, np.ndarray))
        freq = self.freq or record.get("freq")
        if freq is None and many:
            freq = infer_freq(timestamps(list(stamps), f"{where} series {base!r}"))
        if not isinstance(freq, str):
            raise DataError(f"{where}: series {base!r} states no frequency; add a freq column or give freq (--freq).")
        first = (list(stamps) or [EPOCH])[0] if many else stamps
        start = period(first, freq, f"{where} series {base!r}")
        found = []
        for field in self.fields:
            item_id = base if len(self.fields) == 1 else f"{base}_{field}"
            found.append(Series(item_id, start, _values(record[field], where, item_id), _timestamp(first)))
        return found


@dataclass(frozen=True)
class LongLayout:
    """One row per value, with a column of series names."""

    id: Any
    time: Any | None
    target: Any
    freq: str | None

    def series(self, key: str, stamps: pd.DatetimeIndex | None, values: np.ndarray, where: str) -> Series:
        """The series of some rows: sorted by time, missing time steps filled with NaN.

        Raises:
            DataError: a time repeats or is off the grid, or no frequency is known.
        """
        if stamps is None:
            return Series(key, period(EPOCH, self.freq or "", where), values)
        order = np.argsort(stamps.to_numpy(), kind="stable")
        stamps = stamps[order]
        if stamps.has_duplicates:
            stamp = stamps[stamps.duplicated()][0]
            raise DataError(f"{where}: series {key!r} has two values for {stamp}; the item id or the time repeats.")
        if self.freq is None:
            raise DataError(f"{where}: the frequency cannot be told from column {self.time!r}; give freq (--freq).")
        return _regular(key, stamps, values[order], self.freq, where)


def find_layout(frame: pd.DataFrame, where: str, columns: Columns, freq: str | None) -> ListLayout | LongLayout | None:
    """The layout of a table; None for one column per series.

    Raises:
        DataError: a named column is missing, or none of the others can be the target.
    """
    check_columns(frame, where, columns)
    time = columns.time or _find(frame, TIME_NAMES)
    name = columns.id or _find(frame, ID_NAMES)
    lists = [column for column in frame.columns if _holds_lists(frame[column])]
    if lists:
        fields = [columns.target] if columns.target else [column for column in lists if column != time]
        fields = [field for field in fields if field is not None and _list_is_numeric(frame[field])]
        if not fields:
            names = ", ".join(map(str, frame.columns))
            raise DataError(f"{where} has no list column of numbers; its columns are {names}.")
        return ListLayout(name, time, tuple(fields), freq)
    if name is None or name == time:
        return None
    numeric = [c for c in _numeric(frame) if c not in (name, time)]
    target = columns.target or next(
        (c for c in TARGET_NAMES if c in numeric), numeric[0] if len(numeric) == 1 else None
    )
    if target is None or target not in numeric:
        _refuse_target(where, target, numeric, frame)
    if time is None and freq is None:
        raise _no_time(where)
    return LongLayout(name, time, target, freq)


def check_columns(frame: pd.DataFrame, where: str, columns: Columns) -> None:
    """Refuse names of columns that the table does not have.

    Raises:
        DataError: naming the column, and one that it may have meant.
    """
    for role in ("id", "time", "target"):
        name = getattr(columns, role)
        if name is not None and name not in frame.columns:
            raise DataError(f"{where}: {unknown_choice(f'{role} column', name, map(str, frame.columns))}")


def frame_to_series(
    frame: pd.DataFrame, where: str, columns: Columns, freq: str | None, wide: bool = False
) -> list[Series]:
    """Series of a table in list, long or wide layout, in the order in which the table has them.

    Raises:
        DataError: a named column is missing, or there is nothing numeric, no date or no frequency to be
        found.
    """
    check_columns(frame, where, columns)
    layout = None if wide and columns.id is None else find_layout(frame, where, columns, freq)
    if isinstance(layout, ListLayout):
        rows = enumerate(frame.to_dict("records"))
        return [one for row, record in rows for one in layout.series(record, row, where)]
    if isinstance(layout, LongLayout):
        return _from_long(frame, where, layout)
    return _from_wide(frame, where, columns.time or _find(frame, TIME_NAMES), columns.target, freq)


def _from_long(frame: pd.DataFrame, where: str, layout: LongLayout) -> list[Series]:
    if frame[layout.id].isna().any():
        raise DataError(f"{where}: column {layout.id!r} has an empty item id.")
    parts = []
    for key, part in frame.groupby(layout.id, sort=False):
        stamps = None if layout.time is None else timestamps(part[layout.time].tolist(), f"{where} series {key!r}")
        parts.append((str(key), stamps, part[layout.target].to_numpy(float, copy=True)))
    layout = replace(layout, freq=layout.freq or common_freq(stamps for _, stamps, _ in parts))
    return [layout.series(key, stamps, values, where) for key, stamps, values in parts]


def common_freq(parts: Iterable[pd.DatetimeIndex | None]) -> str | None:
    """The frequency of the first series that tells one; times need not be sorted."""
    return next((found for one in parts if one is not None and (found := infer_freq(one.sort_values()))), None)


def _from_wide(frame: pd.DataFrame, where: str, time: str | None, target: str | None, freq: str | None) -> list[Series]:
    """One column per series."""
    numeric = [c for c in _numeric(frame) if c != time]
    if target is not None and target not in numeric:
        _refuse_target(where, target, numeric, frame)
    chosen = [target] if target is not None else numeric
    if not chosen:
        _refuse_target(where, None, numeric, frame)
    if time is None:
        if freq is None:
            raise _no_time(where)
        start = period(EPOCH, freq, where)
        return [Series(str(c), start, frame[c].to_numpy(float, copy=True)) for c in chosen]
    stamps = timestamps(frame[time].tolist(), where)
    order = np.argsort(stamps.to_numpy(), kind="stable")
    stamps = stamps[order]
    if stamps.has_duplicates:
        stamp = stamps[stamps.duplicated()][0]
        hint = "several series in one column need a column of item ids, named item_id or by id_column (--id-column)"
        raise DataError(f"{where}: column {time!r} has {stamp} twice; {hint}.")
    freq = freq or infer_freq(stamps)
    if freq is None:
        raise DataError(f"{where}: the frequency cannot be told from column {time!r}; give freq (--freq).")
    return [_regular(str(c), stamps, frame[c].to_numpy(float)[order], freq, where) for c in chosen]


def _regular(key: str, stamps: pd.DatetimeIndex, values: np.ndarray, freq: str, where: str) -> Series:
    """Series on the full grid of its frequency."""
    start = period(stamps[0], freq, where)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        steps = stamps.to_period(period_freq(freq)).asi8
    # Multiples such as 15min count single minutes, so a step is the multiple.
    places, rest = np.divmod(steps - steps[0], start.freq.n)
    if rest.any() or (len(places) > 1 and np.diff(places).min() < 1):
        bad = int(np.argmax(rest > 0)) if rest.any() else int(np.argmin(np.diff(places))) + 1
        raise DataError(f"{where}: series {key!r} does not follow freq {freq!r} at {stamps[bad]}.")
    if places[-1] >= 100 * len(values) + 1000:
        raise DataError(f"{where}: series {key!r} has {len(values)} values over {places[-1] + 1} steps of {freq!r}.")
    target = np.full(int(places[-1]) + 1, np.nan)
    target[places] = values
    return Series(key, start, target, stamps[0])


def is_missing(cell: Any) -> bool:
    """Whether a cell that holds one value is empty: None, NaN or NaT."""
    return cell is None or bool(cell != cell)


def _timestamp(value: Any) -> pd.Timestamp | None:
    import pandas as pd

    try:
        stamp = pd.Timestamp(value)
    except ValueError:  # periods reach further than timestamps
        return None
    return stamp.tz_localize(None) if stamp.tz is not None else stamp


def _find(frame: pd.DataFrame, names: tuple[str, ...]) -> Any | None:
    lower = {str(column).lower(): column for column in reversed(list(frame.columns))}
    return next((lower[name] for name in names if name in lower), None)


def _numeric(frame: pd.DataFrame) -> list[Any]:
    import pandas as pd

    kinds = pd.api.types
    return [c for c in frame.columns if kinds.is_numeric_dtype(frame[c]) and not kinds.is_bool_dtype(frame[c])]


def _no_time(where: str) -> DataError:
    names = ", ".join(TIME_NAMES)
    return DataError(
        f"{where} has no time column among {names}; name it (time_column, --time-column) or give freq (--freq)."
    )


def _refuse_target(where: str, target: str | None, numeric: list[Any], frame: pd.DataFrame) -> None:
    if not numeric:
        raise DataError(f"{where} has no numeric column; its columns are {', '.join(map(str, frame.columns))}.")
    if target is not None:
        raise DataError(f"{where}: target column {target!r} is not numeric.")
    names = ", ".join(map(str, numeric))
    raise DataError(
        f"{where} has several numeric columns ({names}); name the target column (target_column, --target-column)."
    )


def _holds_lists(column: pd.Series) -> bool:
    return column.dtype == object and any(
        isinstance(cell, (list, tuple, np.ndarray)) for cell in column.head(LOOKED_AT)
    )


def _list_is_numeric(column: pd.Series) -> bool:
    """Whether most of the first lists hold numbers; empty ones and a damaged one are refused later, by name."""
    lists = (cell for cell in column if isinstance(cell, (list, tuple, np.ndarray)) and len(cell))
    kinds = [_is_numeric(cell) for cell in islice(lists, LOOKED_AT)]
    return 2 * sum(kinds) >= len(kinds)


def _is_numeric(cell: Any) -> bool:
    if isinstance(cell, np.ndarray):
        return cell.dtype.kind in "fiu"
    return all(value is None or isinstance(value, (int, float)) for value in cell)


def _values(cell: Any, where: str, item_id: str) -> np.ndarray:
    if not isinstance(cell, (list, tuple, np.ndarray)):
        raise DataError(f"{where}: the target of series {item_id!r} is not a list of numbers.")
    try:
        values = np.array(cell, dtype=float)  # null becomes NaN
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}: the target of series {item_id!r} is not a list of numbers.") from error
    if values.ndim != 1:
        raise DataError(f"{where}: series {item_id!r} has {values.ndim} dimensions; only univariate series are read.")
    return values


def timestamps(values: list[Any], where: str) -> pd.DatetimeIndex:
    """Timestamps of a column; bare years such as 1998 are taken as years."""
    import pandas as pd

    if values and all(isinstance(v, (int, np.integer)) and 1000 <= v <= 3000 for v in values):
        values = [f"{v:04d}-01-01" for v in values]
    elif any(isinstance(v, (int, float, np.number)) and not isinstance(v, bool) for v in values):
        bad = next(v for v in values if isinstance(v, (int, float, np.number)))
        raise DataError(f"{where}: {bad!r} is not a date; write ISO dates such as 2024-01-31.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a mixed or unknown layout warns before it fails
        column = pd.Series(values)
        stamps = pd.DatetimeIndex(pd.to_datetime(column, errors="coerce", format="ISO8601"))
        if stamps.isna().any():
            stamps = pd.DatetimeIndex(pd.to_datetime(column, errors="coerce"))
    if stamps.isna().any():
        bad = values[int(np.argmax(stamps.isna()))]
        raise DataError(f"{where}: {bad!r} is not a date; write ISO dates such as 2024-01-31.")
    return stamps.tz_localize(None) if stamps.tz is not None else stamps
