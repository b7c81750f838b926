"""A table of variables over time from a CSV file, such as ETTh1."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float

from rankscope.errors import DataError

TIME = "date"
ETT = ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")
"""Variables of the four ETT files; OT is the one to forecast."""
_ETT_FILE = re.compile(r"ETT[hm][12]", re.IGNORECASE)


def benchmark_columns(path: str | Path) -> tuple[str, ...] | None:
    """Columns that a file of this name has to have, in their order; None for tables without a fixed set.

    >>> benchmark_columns("data/etth2.csv") == ETT, benchmark_columns("weather.csv")
    (True, None)
    """
    return ETT if _ETT_FILE.fullmatch(Path(path).stem) else None


@dataclass(frozen=True)
class VariableTable:
    """Variables over time, one row a step, without gaps.

    Attributes:
        name: of the file, without its suffix.
        columns: the variables' names.
        values: float64.
        source: the file's path.
    """

    name: str
    columns: tuple[str, ...]
    values: Float[np.ndarray, "time variables"]
    source: str

    @property
    def digest(self) -> str:
        """16 hexadecimal digits of the SHA-256 of columns and values, wherever the file lies and whatever its name."""
        found = hashlib.sha256("\0".join(self.columns).encode())
        found.update(np.ascontiguousarray(self.values, dtype="<f8").tobytes())
        return found.hexdigest()[:16]


def read_table(path: str | Path, columns: Sequence[str] | None = None, *, ignore_times: bool = False) -> VariableTable:
    """Read a CSV with one time column, ``date``, and one column per variable.

    Args:
        path: the file.
        columns: those wanted, in this order; none: all but the time.
        ignore_times: take the rows as they stand, one step each, whatever their times say, as benchmarks do with files
            whose clock stumbles (Weather repeats a time).

    Raises:
        DataError: no such file, not a table, no ``date`` or another column missing, a value missing or not a number
            (row and column are named), or times that are unreadable, repeat, go back or skip a step (the gap is named).
    """
    file = Path(path)
    if not file.is_file():
        raise DataError(f"there is no file {file}: give the path of a CSV with a column {TIME!r} and one per variable.")
    try:
        frame = pd.read_csv(file, float_precision="round_trip")
    except (ValueError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read as a CSV table: {' '.join(str(error).split())}") from error
    wanted = list(columns) if columns is not None else [name for name in frame.columns if name != TIME]
    missing = [name for name in (TIME, *wanted) if name not in frame.columns]
    if missing or not wanted:
        named = f"no column {', '.join(map(repr, missing))}" if missing else "no variable"
        raise DataError(f"{file} has {named}; its columns are {', '.join(map(str, frame.columns))}.")
    if not ignore_times:
        _check_times(frame[TIME], file)
    return VariableTable(file.stem, tuple(wanted), _values(frame[wanted], file), str(file))


def _check_times(times: pd.Series, file: Path) -> None:
    """Every step as long as the most frequent one."""
    parsed = pd.to_datetime(times, errors="coerce")
    bad = np.flatnonzero(parsed.isna().to_numpy())
    if len(bad):
        raise DataError(f"{file}, row {bad[0] + 2}: {times.iloc[bad[0]]!r} in {TIME!r} is not a time.")
    if len(parsed) < 2:
        raise DataError(f"{file} has {len(parsed)} rows of data: too short for anything.")
    steps = parsed.diff().iloc[1:]
    step = steps.mode().iloc[0]
    odd = np.flatnonzero((steps != step).to_numpy())
    if len(odd):
        at = int(odd[0])
        kind = "repeats or goes back in time" if steps.iloc[at] <= pd.Timedelta(0) else "leaves a gap"
        raise DataError(
            f"{file}, row {at + 3}: {parsed.iloc[at + 1]} {kind} after {parsed.iloc[at]}, the step is {step} "
            f"({len(odd)} such rows): fill or cut the table first."
        )


def _values(frame: pd.DataFrame, file: Path) -> Float[np.ndarray, "time variables"]:
    for name in frame.columns:
        numbers = pd.to_numeric(frame[name], errors="coerce").to_numpy(dtype=np.float64)
        bad = np.flatnonzero(~np.isfinite(numbers))
        if len(bad):
            found = frame[name].iloc[bad[0]]
            what = "is missing" if pd.isna(found) else f"is {found!r}, not a finite number"
            raise DataError(f"{file}, row {bad[0] + 2}, column {name!r}: the value {what} ({len(bad)} such there).")
    return frame.to_numpy(dtype=np.float64)
