"""Series from a user's file: Parquet, CSV, JSONL or Arrow, in long, wide or list-column layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from rankscope.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

ID_COLUMNS = ("item_id", "series_id", "unique_id", "id", "series")
TIME_COLUMNS = ("timestamp", "date", "datetime", "time", "ds", "start", "index", "unnamed: 0")
VALUE_COLUMNS = ("target", "value", "y")


@dataclass(frozen=True)
class SeriesTable:
    """Named series of any lengths, float64, missing values as NaN."""

    ids: tuple[str, ...]
    values: tuple[Float[np.ndarray, " _"], ...]
    source: str

    def __len__(self) -> int:
        return len(self.ids)


def series_from_file(path: str | Path, *, min_length: int = 1) -> SeriesTable:
    """Read every series of a file; column names are matched without regard to case.

    Layouts, tried in this order:

    * **list column**: one row per series, the values of a series in one cell. Every column of numeric lists
      is a series of its own, named ``id_column`` where there are several.
    * **long**: one row per time step and an id column (``item_id``, ``series_id``, ``unique_id``, ``id`` or
      ``series``). The values are in ``target``, ``value`` or ``y``, else in every other numeric column. Rows
      are sorted by the time column where there is one, else kept in file order.
    * **wide**: one row per time step, every numeric column that is not a time column is a series.

    Args:
        path: ends in .parquet, .pq, .csv, .jsonl, .ndjson, .json, .arrow, .feather or .ipc.
        min_length: fewest values that a series may have.

    Raises:
        DataError: no such file, unknown or unreadable format, no rows, no numeric column, or a series that is
            empty, all-NaN, infinite somewhere, or shorter than ``min_length``; the message names the series.
    """
    file = Path(path)
    frame = _read(file)
    if frame.empty:
        raise DataError(f"{file} has no rows: nothing to read.")
    frame.columns = [str(name) for name in frame.columns]
    pairs = list(_pairs(frame, file))
    if not pairs:
        columns = ", ".join(frame.columns[:8])
        raise DataError(f"{file} has no numeric column: found {columns}. Add a column of numbers.")
    for name, values in pairs:
        _check(file, name, values, min_length)
    return SeriesTable(tuple(name for name, _ in pairs), tuple(values for _, values in pairs), str(file))


def windows(table: SeriesTable, n: int, length: int, rng: np.random.Generator) -> Float[np.ndarray, "series time"]:
    """``n`` windows of ``length`` consecutive values, each from a random series that is long enough.

    Missing values stay NaN: the models know how to mask them.

    Raises:
        DataError: no series has ``length`` values, or no window of the chosen length has an observed value.
    """
    long_enough = [values for values in table.values if values.size >= length]
    if not long_enough:
        longest = max(values.size for values in table.values)
        raise DataError(
            f"{table.source}: too short, the longest series has {longest} values but length is {length}: "
            f"ask for length {longest} or less."
        )
    rows: list[np.ndarray] = []
    for _ in range(20 * n):
        values = long_enough[rng.integers(len(long_enough))]
        start = rng.integers(values.size - length + 1)
        window = values[start : start + length]
        if not np.isnan(window).all():
            rows.append(window)
        if len(rows) == n:
            return np.stack(rows)
    raise DataError(f"{table.source}: hardly any window of length {length} has an observed value: fill the gaps first.")


def _read(file: Path) -> pd.DataFrame:
    readers: dict[str, Callable[[Path], pd.DataFrame]] = {
        ".parquet": _read_parquet,
        ".pq": _read_parquet,
        ".csv": _read_csv,
        ".jsonl": _read_jsonl,
        ".ndjson": _read_jsonl,
        ".json": _read_jsonl,
        ".arrow": _read_arrow,
        ".feather": _read_arrow,
        ".ipc": _read_arrow,
    }
    if not file.is_file():
        raise DataError(f"{file} is not a file: give the path of a Parquet, CSV, JSONL or Arrow file.")
    reader = readers.get(file.suffix.lower())
    if reader is None:
        raise DataError(f"{file}: format {file.suffix!r} is not known. Choose from {', '.join(readers)}.")
    if file.stat().st_size == 0:
        raise DataError(f"{file} is empty (0 bytes).")
    try:
        return reader(file)
    except (OSError, ValueError) as error:  # pandas' and pyarrow's parse errors are ValueErrors
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(f"{file} cannot be read as {file.suffix[1:]}: {reason}") from error


def _read_parquet(file: Path) -> pd.DataFrame:
    import pyarrow.parquet as pq

    return pq.read_table(file).to_pandas()


def _read_csv(file: Path) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(file, float_precision="round_trip")


def _read_jsonl(file: Path) -> pd.DataFrame:
    import pandas as pd

    return pd.read_json(file, lines=True, convert_dates=False, dtype=False, precise_float=True)


def _read_arrow(file: Path) -> pd.DataFrame:
    import pyarrow as pa

    with pa.memory_map(str(file)) as source:
        try:
            table = pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:  # not the file format: the stream format is what `datasets` writes
            source.seek(0)
            table = pa.ipc.open_stream(source).read_all()
        return table.to_pandas()


def _pairs(frame: pd.DataFrame, file: Path) -> Iterator[tuple[str, np.ndarray]]:
    id_column = _named(frame, ID_COLUMNS)
    time_column = _named(frame, TIME_COLUMNS)
    lists = [name for name in frame.columns if name != time_column and _is_list(frame[name])]
    if lists:
        yield from _list_series(frame, lists, id_column)
        return
    value_column = _named(frame, VALUE_COLUMNS)
    used = (id_column, time_column)
    free = [name for name in frame.columns if name not in used and _is_number(frame[name])]
    if id_column is None:
        for name in free:
            yield name, _array(frame[name])
        return
    columns = [value_column] if value_column in free else free
    if time_column is not None and columns:
        frame = _sorted(frame, time_column, file)
    for key, rows in frame.groupby(id_column, sort=False):
        for name in columns:
            yield _joined(key, name, columns), _array(rows[name])


def _list_series(frame: pd.DataFrame, lists: list[str], id_column: str | None) -> Iterator[tuple[str, np.ndarray]]:
    keys = frame[id_column] if id_column is not None else range(len(frame))
    for position, key in enumerate(keys):
        for name in lists:
            cell = frame[name].iloc[position]
            yield _joined(key, name, lists), _array([] if cell is None else cell)


def _joined(key: object, name: str | None, names: Sequence[object]) -> str:
    return str(key) if len(names) == 1 else f"{key}_{name}"


def _named(frame: pd.DataFrame, choices: tuple[str, ...]) -> str | None:
    lower = {name.lower(): name for name in reversed(list(frame.columns))}
    return next((lower[choice] for choice in choices if choice in lower), None)


def _is_list(column: pd.Series) -> bool:
    cells = column.dropna() if column.dtype == object else column.iloc[:0]
    if cells.empty or not all(isinstance(cell, list | tuple | np.ndarray) for cell in cells):
        return False
    longest = max(cells, key=len)
    try:
        return _array(longest).ndim == 1
    except (TypeError, ValueError):
        return False


def _is_number(column: pd.Series) -> bool:
    from pandas.api import types

    if types.is_bool_dtype(column):
        return False
    return types.is_numeric_dtype(column) or (column.dtype == object and bool(column.isna().all()))


def _array(values: Any) -> np.ndarray:
    """Float64 with None, pandas' NA and the string "NaN" as NaN; dates are refused: they are no numbers."""
    pandas_like = hasattr(values, "to_numpy")
    array = values.to_numpy(dtype=np.float64, na_value=np.nan) if pandas_like else np.asarray(values)
    if array.dtype.kind in "mM":
        raise TypeError("dates are no numbers")
    return array.astype(np.float64)


def _sorted(frame: pd.DataFrame, time_column: str, file: Path) -> pd.DataFrame:
    import pandas as pd

    times = frame[time_column]
    try:
        order = times if pd.api.types.is_numeric_dtype(times) else pd.to_datetime(times)
    except ValueError as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{file}: column {time_column!r} holds a value that is no date: {reason}") from error
    return frame.iloc[np.argsort(order.to_numpy(), kind="stable")]


def _check(file: Path, name: str, values: np.ndarray, min_length: int) -> None:
    where = f"{file}: series {name!r}"
    if values.size == 0:
        raise DataError(f"{where} is empty: remove it.")
    if np.isnan(values).all():
        raise DataError(f"{where} has no observed value, all {values.size} are NaN: remove it.")
    if np.isinf(values).any():
        position = int(np.isinf(values).argmax())
        raise DataError(f"{where} has an infinite value at position {position}: mark it as missing.")
    if values.size < min_length:
        raise DataError(f"{where} is too short: {values.size} values, at least {min_length} are needed.")
