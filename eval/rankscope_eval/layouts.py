"""Tables of series: which columns hold names, times and values, and how each layout becomes series."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Columns:
    """Names of the columns that matter; None means: find it among ``ID_NAMES`` and so on."""

    id: str | None = None
    time: str | None = None
    target: str | None = None


def frame_to_series(
    frame: pd.DataFrame, where: str, columns: Columns, freq: str | None, wide: bool = False
) -> list[Series]:
    """Series of a table in list, long or wide layout, in the order in which the table has them.

    Raises:
        DataError: a named column is missing, or there is nothing numeric, no date or no frequency to be
        found.
    """
    for role in ("id", "time", "target"):
        name = getattr(columns, role)
        if name is not None and name not in frame.columns:
            raise DataError(f"{where}: {unknown_choice(f'{role} column', name, map(str, frame.columns))}")
    lists = [name for name in frame.columns if _holds_lists(frame[name])]
    if lists:
        return _from_lists(frame, where, columns, freq, lists)
    time = columns.time or _find(frame, TIME_NAMES)
    name = columns.id or (None if wide else _find(frame, ID_NAMES))
    if name is not None and name != time:
        return _from_long(frame, where, name, time, columns.target, freq)
    return _from_wide(frame, where, time, columns.target, freq)


def _from_lists(frame: pd.DataFrame, where: str, columns: Columns, freq: str | None, lists: list[str]) -> list[Series]:
    """One row per series; a second list column of numbers is a second series of that row."""
    time = columns.time or _find(frame, TIME_NAMES)
    fields = [columns.target] if columns.target else [name for name in lists if name != time]
    fields = [name for name in fields if name is not None and _list_is_numeric(frame[name])]
    if not fields:
        raise DataError(f"{where} has no list column of numbers; its columns are {', '.join(map(str, frame.columns))}.")
    id_name = columns.id or _find(frame, ID_NAMES)
    series = []
    for row, record in enumerate(frame.to_dict("records")):
        base = str(record[id_name]) if id_name is not None else f"T{row}"
        stamps: Any = record[time] if time is not None else EPOCH
        many = isinstance(stamps, (list, tuple, np.ndarray))
        row_freq = freq or record.get("freq")
        if row_freq is None and many:
            row_freq = infer_freq(_stamps(list(stamps), f"{where} series {base!r}"))
        if not isinstance(row_freq, str):
            raise DataError(f"{where}: series {base!r} states no frequency; add a freq column or give freq=.")
        first = (list(stamps) or [EPOCH])[0] if many else stamps
        start = period(first, row_freq, f"{where} series {base!r}")
        for field in fields:
            item_id = base if len(fields) == 1 else f"{base}_{field}"
            series.append(Series(item_id, start, _values(record[field], where, item_id), _timestamp(first)))
    return series


def _from_long(
    frame: pd.DataFrame, where: str, id_name: str, time: str | None, target: str | None, freq: str | None
) -> list[Series]:
    """One row per value: sorted by time, missing time steps filled with NaN."""
    numeric = [c for c in _numeric(frame) if c not in (id_name, time)]
    target = target or next((c for c in TARGET_NAMES if c in numeric), numeric[0] if len(numeric) == 1 else None)
    if target is None or target not in numeric:
        _refuse_target(where, target, numeric, frame)
    if frame[id_name].isna().any():
        raise DataError(f"{where}: column {id_name!r} has an empty item id.")
    groups = list(frame.groupby(id_name, sort=False))
    if time is None:
        if freq is None:
            raise DataError(f"{where} has no time column among {', '.join(TIME_NAMES)}; name it or give freq=.")
        start = period(EPOCH, freq, where)
        return [Series(str(key), start, part[target].to_numpy(float, copy=True)) for key, part in groups]
    parts = []
    for key, part in groups:
        stamps = _stamps(part[time].tolist(), f"{where} series {key!r}")
        order = np.argsort(stamps.to_numpy(), kind="stable")
        parts.append((str(key), stamps[order], part[target].to_numpy(float)[order]))
    for key, stamps, _ in parts:
        if stamps.has_duplicates:
            stamp = stamps[stamps.duplicated()][0]
            raise DataError(f"{where}: series {key!r} has two values for {stamp}; the item id or the time repeats.")
    freq = freq or next((found for _, stamps, _ in parts if (found := infer_freq(stamps)) is not None), None)
    if freq is None:
        raise DataError(f"{where}: the frequency cannot be told from column {time!r}; give freq=.")
    return [_regular(key, stamps, values, freq, where) for key, stamps, values in parts]


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
            raise DataError(f"{where} has no time column among {', '.join(TIME_NAMES)}; name it or give freq=.")
        start = period(EPOCH, freq, where)
        return [Series(str(c), start, frame[c].to_numpy(float, copy=True)) for c in chosen]
    stamps = _stamps(frame[time].tolist(), where)
    order = np.argsort(stamps.to_numpy(), kind="stable")
    stamps = stamps[order]
    if stamps.has_duplicates:
        stamp = stamps[stamps.duplicated()][0]
        hint = "several series in one column need a column of item ids (item_id)"
        raise DataError(f"{where}: column {time!r} has {stamp} twice; {hint}.")
    freq = freq or infer_freq(stamps)
    if freq is None:
        raise DataError(f"{where}: the frequency cannot be told from column {time!r}; give freq=.")
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


def _refuse_target(where: str, target: str | None, numeric: list[Any], frame: pd.DataFrame) -> None:
    if not numeric:
        raise DataError(f"{where} has no numeric column; its columns are {', '.join(map(str, frame.columns))}.")
    if target is not None:
        raise DataError(f"{where}: target column {target!r} is not numeric.")
    raise DataError(f"{where} has several numeric columns ({', '.join(map(str, numeric))}); name the target column.")


def _holds_lists(column: pd.Series) -> bool:
    return column.dtype == object and any(isinstance(cell, (list, tuple, np.ndarray)) for cell in column.head(20))


def _list_is_numeric(column: pd.Series) -> bool:
    first = next((cell for cell in column if isinstance(cell, (list, tuple, np.ndarray)) and len(cell)), None)
    if first is None:
        return True  # empty lists: refused later, with the name of the series
    if isinstance(first, np.ndarray):
        return first.dtype.kind in "fiu"
    return all(cell is None or isinstance(cell, (int, float)) for cell in first)


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


def _stamps(values: list[Any], where: str) -> pd.DatetimeIndex:
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
