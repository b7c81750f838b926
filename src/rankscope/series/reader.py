"""Read whole files of series, and convert table rows to series with per-row error reporting."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankscope.errors import DataError
from rankscope.series.files import joined, open_file
from rankscope.series.formats import Rows, Source
from rankscope.series.frequency import infer_freq, period, period_freq, quiet
from rankscope.series.layout import (
    EPOCH,
    STEPS,
    Columns,
    TableLayout,
    column_numbers,
    find_layout,
    is_missing,
    read_times,
    rows_by_name,
    timestamp_format,
    with_grid,
    without_nameless,
)
from rankscope.series.record import Series, check_set, check_values

if TYPE_CHECKING:
    import pandas as pd


_ISO = re.compile(r"\s*\d{4}(-\d\d|\d{4}|$)")
_STATE = "give freq (--freq), or a file for each frequency"
_YEAR = re.compile(r"([1-9]\d{3})(?:-\d\d?-\d\d?|$)")


@dataclass(frozen=True)
class BadRow:
    """Invalid row: its number, the id of its series if known, and the error message."""

    line: int
    item_id: str
    reason: str


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
    """Read all series of a file; see `rankscope.series` for the rules.

    Args:
        path: path of the file.
        format: ``parquet``, ``arrow``, ``csv``, ``wide_csv`` or ``jsonl`` (default: by suffix).
        freq: frequency (default: from the file or its timestamps).
        columns: non-default names of the id, time and target columns.
        numbers: reject series without any number.
        dated: reject series without a frequency.
        ignore_times: treat each row as one step; times are used only to infer the frequency.

    Raises:
        DataError: the file is missing, unreadable or holds no usable series.
    """
    names = columns or Columns()
    source = open_file(path, None, format=format, texts=names.texts)
    batches = list(source.batches)
    if not any(len(batch.frame) for batch in batches):
        raise no_rows(source, batches)
    rows = joined(batches, source.path)
    wide = format == "wide_csv" and names.id is None
    layout = find_layout(rows.frame, str(path), names, freq, wide=wide)
    layout = with_grid(layout, rows)
    layout = replace(layout, time=None) if ignore_times else layout
    series, bad = to_series(without_nameless(rows, layout), layout, str(path), source.unit, dated=dated)
    if bad:
        raise DataError(bad[0].reason)
    check_set(series, str(path), numbers=numbers)
    return series


def no_rows(source: Source, batches: Sequence[Rows]) -> DataError:
    """Build the error for a file without valid rows."""
    broken = next((one for batch in batches for one in batch.broken), None)
    what = f"{source.unit} {broken.line} has {broken.reason}" if broken else "it holds no rows"
    return DataError(f"{source.path} holds no series: {what}.")


def to_series(
    rows: Rows, layout: TableLayout, path: str, unit: str, *, dated: bool = True
) -> tuple[list[Series], list[BadRow]]:
    """Convert rows to series, and collect invalid rows.

    In the long layout a damaged row invalidates its series: dropping the row would silently change the history. Where
    its name cannot be read, the series of the rows before and after it are meant.

    Args:
        rows: rows of complete series; in the long layout in any order, all with an id.
        layout: layout of the table.
        path: path of the file, for errors.
        unit: name of a row in error messages.
        dated: reject series without a frequency.
    """
    place = list(rows.frame.columns).index(layout.id) if layout.form == "long" else 0
    bad, torn = [], set()
    for one in rows.broken:
        name, beside = one.cells[place] if place < len(one.cells) else "", ""
        if name:
            torn.add(name)
        elif layout.form == "long" and len(rows.frame):
            after = int(np.searchsorted(rows.lines, one.line))
            names = rows.frame[layout.id].iloc[max(0, after - 1) : after + 1].map(str).unique().tolist()
            torn.update(names)
            beside = f", beside series {' and '.join(map(repr, names))}"
        bad.append(BadRow(one.line, name, f"{path}: {unit} {one.line} has {one.reason}{beside}."))
    made = {"list": _from_lists, "long": _from_long, "wide": _from_wide}[layout.form]
    found = list(made(rows, layout, path, unit, torn, dated))
    bad += [one for one in found if isinstance(one, BadRow)]
    return [one for one in found if isinstance(one, Series)], sorted(bad, key=lambda one: one.line)


def _from_wide(
    rows: Rows, layout: TableLayout, path: str, unit: str, _: set[str], dated: bool
) -> Iterator[Series | BadRow]:
    """Convert the wide layout: one column per series, all on the table's times."""
    frame = rows.frame[list(layout.fields)]
    if all(kind.kind in "fiu" for kind in frame.dtypes):
        values = frame.to_numpy(dtype=float)
    else:
        cells = [column_numbers(frame[field]) for field in layout.fields]
        values, wrong = (np.stack(parts, axis=1) for parts in zip(*cells, strict=True))
        for place, field in np.argwhere(wrong)[:1].tolist():
            yield _no_number(rows, place, layout.fields[field], str(layout.fields[field]), f"{path}: {unit}")
            return
    times = None if layout.time is None else read_times(rows.frame[layout.time], layout.timestamp_format)
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
    """Convert the long layout, skipping series with a broken row, which is already reported."""
    where = f"{path}: {unit}"
    frame = rows.frame
    field = layout.fields[0]
    values, wrong = column_numbers(frame[field])
    names = frame[layout.id].to_numpy(dtype=object)
    times = None if layout.time is None else read_times(frame[layout.time], layout.timestamp_format)
    undated = np.zeros(len(frame), dtype=bool) if times is None else times.isna()
    steps = _steps(times, layout)
    for part in rows_by_name(frame[layout.id]):
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
        here = f"{path}: from {unit} {line} on"
        own = slice(part[0], part[-1] + 1) if part[-1] - part[0] + 1 == len(part) else part  # a view, where it can be
        try:
            when = None if times is None else times[own]
            one = Series(key, *_on_grid(values[own], when, None if steps is None else steps[own], layout, here, key))
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
    """Convert one row of the list layout; without an id, the row number from 0 becomes the id."""
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
        times, form = _record_times(pd.Series(cell, name=layout.time), where, base)
        grid = infer_freq(times.sort_values()) if freq is None or form == STEPS else freq
        layout = replace(layout, freq=freq if form == STEPS else grid, grid=grid, timestamp_format=form)
    elif isinstance(cell, (int, float, np.number)) and not is_missing(cell):
        (cell,), form = _record_times(pd.Series([cell], name=layout.time), where, base)
        cell = EPOCH if form == STEPS else cell
    elif isinstance(cell, str) and layout.timestamp_format != "mixed" and not _ISO.match(cell):
        written, cell = cell, _start(cell, layout.timestamp_format)
        if cell is pd.NaT:
            raise DataError(_is_no_date(where, written, base))
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


@lru_cache(maxsize=4096)
def _start(cell: str, form: str) -> Any:
    """Parse the time of a row of the list layout, NaT if it is written in another way than the others."""
    import pandas as pd

    return read_times(pd.Series([cell]), form)[0]


def _record_times(column: pd.Series, where: str, key: str) -> tuple[pd.DatetimeIndex, str]:
    """Parse the times of one row of the list layout; also return their format."""
    form = timestamp_format(column, where)
    times = read_times(column, form)
    if times.hasnans:
        raise DataError(_is_no_date(where, column.iloc[int(times.isna().argmax())], key))
    return times, form


def _on_grid(
    values: np.ndarray,
    times: pd.DatetimeIndex | None,
    steps: np.ndarray | None,
    layout: TableLayout,
    where: str,
    key: str,
) -> tuple[Any, np.ndarray, pd.Timestamp | None]:
    """Place values on the regular time grid; return the start, the values (NaN for missing steps) and the first time.

    Args:
        values: values, time on the first axis.
        times: times of the rows; None for consecutive rows.
        steps: times as period numbers; None without a frequency.
        layout: layout with the frequency.
        where: prefix of error messages.
        key: id of the series; empty for all series of a wide table.

    Raises:
        DataError: a time is repeated or off the grid, or gaps are disproportionate.
    """
    import pandas as pd

    if times is None or not len(times):
        return pd.NaT if layout.freq is None else period(EPOCH, layout.freq, where), values, None
    if not times.is_monotonic_increasing:
        order = np.argsort(times.to_numpy(), kind="stable")
        values, times, steps = values[order], times[order], None if steps is None else steps[order]
    first = times[0] if layout.timestamp_format != STEPS else None
    start = pd.NaT if layout.freq is None else period(EPOCH if first is None else first, layout.freq, where)
    whose = f"series {key!r}" if key else f"column {layout.time!r}"
    if not times.is_unique:
        raise DataError(
            f"{where}: {whose} has {_shown(times[times.duplicated()][0], layout)} twice"
            + (
                "; ids that span several columns have to be joined into one"
                if layout.form == "long"
                else ""
                if key
                else "; several series in one column need a column of item ids (id_column, --id-column)"
            )
            + ("; local time does so when clocks go back: write times in UTC." if layout.zoned else ".")
        )
    if steps is None:
        return start, values, first
    # Period numbers of multiples such as 15min count single minutes, so divide by the multiple.
    multiple = period(EPOCH, layout.grid or "", where).freq.n
    places, rest = np.divmod(steps - steps[0], multiple)
    if first is None and start is not pd.NaT:
        start += int(steps[0] // multiple)
    odd = (rest > 0) | (np.diff(places, prepend=-1) < 1)
    if odd.any():
        rule = "its other steps" if first is None else f"freq {layout.grid!r}"
        guessed = f", which is that of the first series: {_STATE}" if layout.inferred and first is not None else ""
        at = _shown(times[int(odd.argmax())], layout)
        raise DataError(f"{where}: {whose} does not follow {rule} at {at}{guessed}.")
    closest = int(np.diff(places).min()) if len(places) > 2 else 1
    if closest > 1 and not layout.inferred:
        warnings.warn(
            f"by freq {layout.grid!r} some series have no value next to another: is it their frequency?",
            stacklevel=2,
        )
    elif closest > 1:
        raise DataError(
            f"{where}: {whose} has no value within {closest} steps of another by freq {layout.grid!r}, which is that "
            f"of the first series: {_STATE}."
        )
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


def _shown(time: pd.Timestamp, layout: TableLayout) -> object:
    return int(time.timestamp()) if layout.timestamp_format == STEPS else time


def _no_number(rows: Rows, place: int, field: Any, key: str, where: str) -> BadRow:
    line = int(rows.lines[place])
    cell = rows.frame[field].iloc[place]
    return BadRow(line, key, f"{where} {line}: {cell!r} in series {key!r} is not a number.")


def _no_date(rows: Rows, place: int, layout: TableLayout, key: str, where: str) -> BadRow:
    line = int(rows.lines[place])
    return BadRow(line, key, _is_no_date(f"{where} {line}", rows.frame[layout.time].iloc[place], key))


def _is_no_date(where: str, cell: Any, key: str) -> str:
    import pandas as pd

    whose = f"series {key!r}: " if key else ""
    if is_missing(cell):
        return f"{where}: {whose}a time is missing; write ISO dates such as 2024-01-31."
    shown = cell if isinstance(cell, (str, int, float)) else str(cell)
    year = _YEAR.match(str(shown))
    if year and not pd.Timestamp.min.year < int(year[1]) < pd.Timestamp.max.year:
        return (
            f"{where}: {whose}{shown!r} is out of the range of timestamps, {pd.Timestamp.min.year + 1} to "
            f"{pd.Timestamp.max.year - 1}: count the steps instead (0, 1, …) and give freq (--freq)."
        )
    return f"{where}: {whose}{shown!r} is not a date; write ISO dates such as 2024-01-31."


def _timestamp(value: Any) -> pd.Timestamp | None:
    import pandas as pd

    try:
        stamp = pd.Timestamp(value)
    except (ValueError, TypeError):  # periods have a wider range than timestamps
        return None
    return stamp.tz_localize(None) if stamp.tz is not None else stamp


def _values(cell: Any, where: str, item_id: str) -> np.ndarray:
    if not isinstance(cell, (list, tuple, np.ndarray)):
        raise DataError(f"{where}: the target of series {item_id!r} is not a list of numbers.")
    try:
        values = np.array(cell, dtype=float)  # null becomes NaN
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{where}: the target of series {item_id!r} is not a list of numbers.") from error
    if values.ndim != 1:
        raise DataError(f"{where}: series {item_id!r} has {values.ndim} dimensions; only univariate series are read.")
    return values
