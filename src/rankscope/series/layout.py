"""Tables of series: which columns hold names, times and values, and how their rows become series."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from rankscope.errors import DataError, unknown_choice
from rankscope.series.cells import LOOKED_AT, STEPS, column_numbers, mostly_numbers, read_times, way_of_writing
from rankscope.series.files import Broken, Rows
from rankscope.series.frequency import infer_freq, period, period_freq, quiet
from rankscope.series.record import Series, check_values

if TYPE_CHECKING:
    import pandas as pd

ID_NAMES = ("item_id", "unique_id", "series_id", "id", "series", "item")
TIME_NAMES = ("timestamp", "date", "datetime", "ds", "time", "start", "period", "month", "year")
TARGET_NAMES = ("target", "value", "y")
INDEX_NAMES = ("", "unnamed: 0", "__index_level_0__")
"""A column without a name: an index that pandas wrote."""
EPOCH = "1970-01-01"


@dataclass(frozen=True)
class Columns:
    """Names of the columns that matter; None means: find it among ``ID_NAMES`` and so on."""

    id: str | None = None
    time: str | None = None
    target: str | None = None

    @property
    def texts(self) -> set[str]:
        """Columns whose cells are taken as they are written, in lower case."""
        named = [name.lower() for name in (self.id, self.time) if name is not None]
        return {*ID_NAMES, *TIME_NAMES, *INDEX_NAMES, *named}


@dataclass(frozen=True)
class TableLayout:
    """Where names, times and values stand in a table.

    Attributes:
        form: ``list`` (a row per series, its values in a list), ``long`` (a row per value and a column of names) or
            ``wide`` (a column per series).
        id: column of names.
        time: column of times.
        fields: columns of values.
        freq: that the series get; of the list form, None lets every row state its own.
        grid: that gaps are counted on: ``freq``, or the seconds that stand for steps.
        writing: how times are written, see `rankscope.series.cells.way_of_writing`.
    """

    form: str
    id: Any | None
    time: Any | None
    fields: tuple[Any, ...]
    freq: str | None
    grid: str | None
    writing: str = "ISO8601"


@dataclass(frozen=True)
class BadRow:
    """A row that no series can be made of: its number, the name of its series if it has one, what is wrong."""

    line: int
    item_id: str
    reason: str


def find_layout(
    frame: pd.DataFrame, where: str, columns: Columns, freq: str | None, *, wide: bool = False
) -> TableLayout:
    """The layout of a table, told by its columns' names and by what most of their cells hold.

    Args:
        frame: the table, or its first rows.
        where: what an error begins with.
        columns: names, where they are not the usual ones.
        freq: frequency, where times do not tell it.
        wide: take every column of numbers as a series, whatever the names are.

    Raises:
        DataError: a named column is missing, nothing is numeric, or several columns could be the target.
    """
    for role in ("id", "time", "target"):
        name = getattr(columns, role)
        if name is not None and name not in frame.columns:
            raise DataError(f"{where}: {unknown_choice(f'{role} column', name, map(str, frame.columns))}")
    freq = None if freq is None else period_freq(freq)
    time = columns.time or _find(frame, TIME_NAMES)
    name = columns.id or (None if wide else _find(frame, ID_NAMES))
    index = _find(frame, INDEX_NAMES)
    if time is None and index is not None and _holds_dates(frame[index], where):
        time = index
    special = (name, time, index)
    objects = [column for column, kind in frame.dtypes.items() if kind.kind == "O"]
    lists = [column for column in objects if _holds_lists(frame[column])]
    if lists:
        fields = [columns.target] if columns.target else [column for column in lists if column != time]
        fields = [field for field in fields if _lists_are_numeric(frame[field])]
        if not fields:
            raise DataError(f"{where} has no list column of numbers; its columns are {_names(frame)}.")
        return TableLayout("list", name, time, tuple(fields), freq, freq)
    numeric = [column for column in frame.columns if column not in special and mostly_numbers(frame[column])]
    if columns.target is not None and columns.target not in numeric:
        raise DataError(f"{where}: target column {columns.target!r} is not numeric.")
    if not numeric:
        raise DataError(f"{where} has no numeric column; its columns are {_names(frame)}.")
    writing = "ISO8601" if time is None else way_of_writing(frame[time], where)
    grid = None if writing == STEPS else freq
    if name is None or name == time:
        fields = numeric if columns.target is None else [columns.target]
        return TableLayout("wide", None, time, tuple(fields), freq, grid, writing)
    named = columns.target or next((one for one in TARGET_NAMES if one in numeric), None)
    if named is None and len(numeric) > 1:
        raise DataError(
            f"{where} has several numeric columns ({', '.join(map(str, numeric))}); name the target column "
            "(target_column, --target-column), or rename it to target."
        )
    return TableLayout("long", name, time, (named or numeric[0],), freq, grid, writing)


def without_nameless(rows: Rows, layout: TableLayout) -> Rows:
    """The rows without those of the long layout that belong to no series: these are broken ones."""
    nameless = rows.frame[layout.id].isna().to_numpy() if layout.form == "long" else np.zeros(1, dtype=bool)
    if not nameless.any():
        return rows
    reason = f"no name of a series in column {layout.id!r}"
    missing = [Broken(line, (), reason) for line in rows.lines[nameless].tolist()]
    broken = tuple(sorted([*rows.broken, *missing], key=lambda one: one.line))
    return Rows(rows.frame[~nameless], rows.lines[~nameless], broken, rows.number)


def to_series(
    rows: Rows, layout: TableLayout, path: str, unit: str, *, dated: bool = True
) -> tuple[list[Series], list[BadRow]]:
    """Make the series of some rows, and name the rows that none could be made of.

    In the long layout a damaged row costs its series: a forecast from a history with a hole that the file does not
    have would be another one, and nothing would show it.

    Args:
        rows: of whole series; in the long layout in any order, and all with a name.
        layout: where names, times and values stand.
        path: of the file, for errors.
        unit: what its rows are called.
        dated: refuse series without a frequency.
    """
    place = list(rows.frame.columns).index(layout.id) if layout.form == "long" else 0
    bad = []
    for one in rows.broken:
        name = one.cells[place] if place < len(one.cells) else ""
        bad.append(BadRow(one.line, name, f"{path}: {unit} {one.line} has {one.reason}."))
    torn = {one.item_id for one in bad if one.item_id}
    made = {"list": _from_lists, "long": _from_long, "wide": _from_wide}[layout.form]
    found = list(made(rows, layout, path, unit, torn, dated))
    bad += [one for one in found if isinstance(one, BadRow)]
    return [one for one in found if isinstance(one, Series)], sorted(bad, key=lambda one: one.line)


def with_grid(layout: TableLayout, rows: Rows) -> TableLayout:
    """The layout with the frequency of the first series that tells one, where its times have to tell."""
    if layout.form == "list" or layout.time is None or layout.grid is not None or not len(rows.frame):
        return layout
    column = rows.frame[layout.time]
    for part in [slice(None)] if layout.form == "wide" else _by_name(rows.frame[layout.id]):
        found = infer_freq(read_times(column.iloc[part], layout.writing).dropna().unique().sort_values())
        if found is not None:
            return replace(layout, grid=found, freq=layout.freq if layout.writing == STEPS else found)
    return layout


def _from_wide(
    rows: Rows, layout: TableLayout, path: str, unit: str, _: set[str], dated: bool
) -> Iterator[Series | BadRow]:
    """One column per series, all on the times of the table, filled as one block."""
    frame = rows.frame[list(layout.fields)]
    if all(kind.kind in "fiu" for kind in frame.dtypes):
        values = frame.to_numpy(dtype=float)
    else:
        cells = [column_numbers(frame[field]) for field in layout.fields]
        values, wrong = (np.stack(parts, axis=1) for parts in zip(*cells, strict=True))
        for place, field in np.argwhere(wrong)[:1].tolist():
            yield _no_number(rows, place, layout.fields[field], str(layout.fields[field]), f"{path}: {unit}")
            return
    times = None if layout.time is None else read_times(rows.frame[layout.time], layout.writing)
    if times is not None and times.hasnans:
        yield _no_date(rows, int(times.isna().argmax()), layout, "", f"{path}: {unit}")
        return
    try:
        start, values, stamp = _on_grid(values, times, _steps(times, layout), layout, path, "")
        for field, row in zip(layout.fields, np.ascontiguousarray(values.T), strict=True):
            one = Series(str(field), start, row, stamp)
            check_values(one, path, dated=dated)
            yield one
    except DataError as error:
        yield BadRow(0, "", str(error))


def _from_long(
    rows: Rows, layout: TableLayout, path: str, unit: str, torn: set[str], dated: bool
) -> Iterator[Series | BadRow]:
    """Series of the long layout but for those of a torn row, which is named already."""
    where = f"{path}: {unit}"
    frame = rows.frame
    field = layout.fields[0]
    values, wrong = column_numbers(frame[field])
    names = frame[layout.id].to_numpy(dtype=object)
    times = None if layout.time is None else read_times(frame[layout.time], layout.writing)
    undated = np.zeros(len(frame), dtype=bool) if times is None else times.isna()
    steps = _steps(times, layout)
    for part in _by_name(frame[layout.id]):
        key = str(names[part[0]])
        if key in torn:
            continue
        if wrong[part].any():
            yield _no_number(rows, int(part[wrong[part].argmax()]), field, key, where)
            continue
        if undated[part].any():
            yield _no_date(rows, int(part[undated[part].argmax()]), layout, key, where)
            continue
        line = int(rows.lines[part[0]])
        here = f"{where} {line}"
        try:
            own = None if times is None else times[part]
            one = Series(key, *_on_grid(values[part], own, None if steps is None else steps[part], layout, here, key))
            check_values(one, here, dated=dated)
        except DataError as error:
            yield BadRow(line, key, str(error))
        else:
            yield one


def _from_lists(
    rows: Rows, layout: TableLayout, path: str, unit: str, _: set[str], dated: bool
) -> Iterator[Series | BadRow]:
    for line, record in zip(rows.lines.tolist(), rows.frame.to_dict("records"), strict=True):
        where = f"{path}: {unit} {line}"
        try:
            found = list(_of_record(record, layout, line - 1, where))
            for one in found:
                check_values(one, where, dated=dated)
        except DataError as error:
            name = "" if layout.id is None or is_missing(record[layout.id]) else str(record[layout.id])
            yield BadRow(line, name, str(error))
        else:
            yield from found


def _of_record(record: Mapping[Any, Any], layout: TableLayout, number: int, where: str) -> Iterator[Series]:
    """Series of one row of the list layout; its number from 0 names a series that has no id."""
    import pandas as pd

    if layout.id is not None and is_missing(record[layout.id]):
        raise DataError(f"{where}: column {layout.id!r} has an empty item id.")
    base = str(record[layout.id]) if layout.id is not None else f"T{number}"
    cell: Any = EPOCH if layout.time is None else record[layout.time]
    freq = layout.freq or record.get("freq")
    try:
        freq = period_freq(freq) if isinstance(freq, str) else None
    except DataError as error:
        raise DataError(f"{where}: series {base!r}: {error}") from error
    times = None
    if isinstance(cell, (list, tuple, np.ndarray)) and len(cell):
        times, writing = _record_times(pd.Series(cell, name=layout.time), where, base)
        grid = infer_freq(times.sort_values()) if freq is None or writing == STEPS else freq
        layout = replace(layout, freq=freq if writing == STEPS else grid, grid=grid, writing=writing)
    elif isinstance(cell, (int, float, np.number)) and not is_missing(cell):
        (cell,), writing = _record_times(pd.Series([cell], name=layout.time), where, base)
        cell = EPOCH if writing == STEPS else cell
    for field in layout.fields:
        key = base if len(layout.fields) == 1 else f"{base}_{field}"
        values = _values(record[field], where, key)
        if times is not None:
            if len(times) != len(values):
                raise DataError(f"{where}: series {key!r} has {len(times)} times but {len(values)} values.")
            yield Series(key, *_on_grid(values, times, _steps(times, layout), layout, where, key))
        elif freq is None and (isinstance(cell, (list, tuple, np.ndarray)) or is_missing(cell)):
            yield Series(key, pd.NaT, values)
        else:
            start = period(cell, freq or "D", f"{where} series {key!r}")
            yield Series(key, start if freq else pd.NaT, values, _timestamp(cell))


def _record_times(column: pd.Series, where: str, key: str) -> tuple[pd.DatetimeIndex, str]:
    """Times of one row of the list layout, and how they are written."""
    writing = way_of_writing(column, where)
    times = read_times(column, writing)
    if times.hasnans:
        raise DataError(_is_no_date(where, column.iloc[int(times.isna().argmax())], key))
    return times, writing


def _on_grid(
    values: np.ndarray,
    times: pd.DatetimeIndex | None,
    steps: np.ndarray | None,
    layout: TableLayout,
    where: str,
    key: str,
) -> tuple[Any, np.ndarray, pd.Timestamp | None]:
    """Start, the values on every step from the first to the last (NaN where the file has none), and the first time.

    Args:
        values: their first axis is time.
        times: of the rows; None where these follow each other.
        steps: the times as numbers of periods; None where no frequency is known.
        layout: tells the frequency.
        where: what an error begins with.
        key: name of the series; empty where they are all those of a table.

    Raises:
        DataError: a time repeats or is off the grid, or the gaps are out of proportion.
    """
    import pandas as pd

    if times is None or not len(times):
        return pd.NaT if layout.freq is None else period(EPOCH, layout.freq, where), values, None
    if not times.is_monotonic_increasing:
        order = np.argsort(times.to_numpy(), kind="stable")
        values, times, steps = values[order], times[order], None if steps is None else steps[order]
    first = times[0] if layout.writing != STEPS else None
    start = pd.NaT if layout.freq is None else period(EPOCH if first is None else first, layout.freq, where)
    whose = f"series {key!r}" if key else f"column {layout.time!r}"
    if not times.is_unique:
        raise DataError(
            f"{where}: {whose} has {_shown(times[times.duplicated()][0], layout)} twice"
            + ("." if key else "; several series in one column need a column of item ids (id_column, --id-column).")
        )
    if steps is None:
        return start, values, first
    # Multiples such as 15min count single minutes, so a step is the multiple.
    multiple = period(EPOCH, layout.grid or "", where).freq.n
    places, rest = np.divmod(steps - steps[0], multiple)
    if first is None and start is not pd.NaT:
        start += int(steps[0] // multiple)
    odd = (rest > 0) | (np.diff(places, prepend=-1) < 1)
    if odd.any():
        rule = "its other steps" if first is None else f"freq {layout.grid!r}"
        raise DataError(f"{where}: {whose} does not follow {rule} at {_shown(times[int(odd.argmax())], layout)}.")
    length = int(places[-1]) + 1
    if length == len(values):
        return start, values, first
    if length > 100 * len(values) + 1000:
        raise DataError(f"{where}: {whose} has {len(values)} values over {length} steps of {layout.grid!r}.")
    whole = np.full((length, *values.shape[1:]), np.nan)
    whole[places] = values
    return start, whole, first


def _steps(times: pd.DatetimeIndex | None, layout: TableLayout) -> np.ndarray | None:
    if times is None or layout.grid is None:
        return None
    with quiet():
        return np.asarray(times.to_period(layout.grid).asi8)


def _by_name(column: pd.Series) -> list[np.ndarray]:
    """The rows of every name, names in the order of their first rows."""
    import pandas as pd

    codes = pd.factorize(column.map(str) if column.dtype.kind == "O" else column)[0]
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if len(order) else []


def _shown(time: pd.Timestamp, layout: TableLayout) -> object:
    return int(time.timestamp()) if layout.writing == STEPS else time


def is_missing(cell: Any) -> bool:
    """True where a cell that holds one value is empty: None, NaN or NaT."""
    return cell is None or bool(cell != cell)


def _no_number(rows: Rows, place: int, field: Any, key: str, where: str) -> BadRow:
    line = int(rows.lines[place])
    cell = rows.frame[field].iloc[place]
    return BadRow(line, key, f"{where} {line}: {cell!r} in series {key!r} is not a number.")


def _no_date(rows: Rows, place: int, layout: TableLayout, key: str, where: str) -> BadRow:
    line = int(rows.lines[place])
    return BadRow(line, key, _is_no_date(f"{where} {line}", rows.frame[layout.time].iloc[place], key))


def _is_no_date(where: str, cell: Any, key: str) -> str:
    whose = f"series {key!r}: " if key else ""
    shown = cell if isinstance(cell, (str, int, float)) else str(cell)
    return f"{where}: {whose}{shown!r} is not a date; write ISO dates such as 2024-01-31."


def _timestamp(value: Any) -> pd.Timestamp | None:
    import pandas as pd

    try:
        stamp = pd.Timestamp(value)
    except (ValueError, TypeError):  # periods reach further than timestamps
        return None
    return stamp.tz_localize(None) if stamp.tz is not None else stamp


def _find(frame: pd.DataFrame, names: tuple[str, ...]) -> Any | None:
    lower = {str(column).lower(): column for column in reversed(list(frame.columns))}
    return next((lower[name] for name in names if name in lower), None)


def _names(frame: pd.DataFrame) -> str:
    return ", ".join(map(str, frame.columns[:8]))


def _holds_dates(column: pd.Series, where: str) -> bool:
    form = way_of_writing(column, where)
    return form != STEPS and 2 * int(read_times(column, form).notna().sum()) > len(column)


def _holds_lists(column: pd.Series) -> bool:
    return any(isinstance(cell, (list, tuple, np.ndarray)) for cell in column.head(LOOKED_AT))


def _lists_are_numeric(column: pd.Series) -> bool:
    """True where most of the first lists hold numbers; empty ones and a damaged one are refused later, by name."""
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
