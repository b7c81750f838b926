"""Files of series: Parquet, Arrow IPC, CSV and JSON lines, in list, long or wide layout."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.errors import DataError, unknown_choice
from rankscope_eval.layouts import Columns, frame_to_series
from rankscope_eval.series import Series, check_series

if TYPE_CHECKING:
    import pandas as pd


def read_series(
    path: str | Path,
    *,
    format: str | None = None,
    freq: str | None = None,
    columns: Columns | None = None,
    numbers: bool = True,
) -> list[Series]:
    """Every series of one file.

    Layouts, found from the columns: *list* (one row per series, its values in a list), *long* (one row per
    value, with a column of series names) and *wide* (one column per series).

    A missing value is NaN, an empty cell or null.

    Args:
        path: the file.
        format: ``parquet``, ``arrow``, ``csv``, ``wide_csv`` or ``jsonl``; else the file's ending decides.
        freq: frequency, where the file neither states it nor has timestamps to tell it from.
        columns: names of the id, time and target columns, where they are not the usual ones.
        numbers: whether a series without any number is refused.

    Raises:
        DataError: the file is missing, unreadable or holds no usable series.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"data file {path} does not exist.")
    record = _format(path, format)
    try:
        frame = record.read(path)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except Exception as error:  # each parser has its own family of errors
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise DataError(f"{path} cannot be read as {record.name}: {reason[0]}") from error
    if frame.empty:
        raise DataError(f"{path} is empty: it holds no rows.")
    series = frame_to_series(frame, str(path), columns or Columns(), freq, wide=record.name == "wide_csv")
    check_series(series, str(path), numbers=numbers)
    return series


@dataclass(frozen=True)
class Format:
    """How files of one kind become a table."""

    name: str
    endings: tuple[str, ...]
    read: Callable[[Path], pd.DataFrame]


def _parquet(path: Path) -> pd.DataFrame:
    import pyarrow.parquet as pq

    return pq.read_table(path).to_pandas()


def _arrow(path: Path) -> pd.DataFrame:
    import pyarrow as pa

    with pa.OSFile(str(path)) as source:
        try:
            table = pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:  # the streaming form, which `datasets` writes, has no footer
            source.seek(0)
            table = pa.ipc.open_stream(source).read_all()
    return table.to_pandas()


def _csv(path: Path) -> pd.DataFrame:
    import pandas as pd

    if path.stat().st_size == 0:
        raise DataError("the file is empty.")
    return pd.read_csv(path, float_precision="round_trip")


def _jsonl(path: Path) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"line {number} is not JSON: {error.msg} at column {error.colno}.") from error
        if not isinstance(row, dict):
            raise DataError(f'line {number} is not an object such as {{"item_id": …, "target": […]}}.')
        rows.append(row)
    return pd.DataFrame(rows)


FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        Format("parquet", (".parquet", ".pq"), _parquet),
        Format("arrow", (".arrow", ".feather", ".ipc"), _arrow),
        Format("csv", (".csv",), _csv),
        Format("wide_csv", (), _csv),
        Format("jsonl", (".jsonl", ".ndjson", ".json"), _jsonl),
    )
}
ENDINGS = tuple(ending for one in FORMATS.values() for ending in one.endings)


def _format(path: Path, name: str | None) -> Format:
    if name is not None:
        if name not in FORMATS:
            raise DataError(unknown_choice("format", name, FORMATS))
        return FORMATS[name]
    for record in FORMATS.values():
        if path.suffix.lower() in record.endings:
            return record
    raise DataError(f"{path} has an ending that is not known: use one of {', '.join(ENDINGS)}, or state the format.")


def file_format(path: Path) -> str:
    """Name of the format that a file's ending stands for.

    Raises:
        DataError: it stands for none.
    """
    return _format(path, None).name
