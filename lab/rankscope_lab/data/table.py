"""Multivariate tables from CSV files, such as ETTh1."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from rankscope.errors import DataError
from rankscope.series import Columns, read_series

TIME = "date"
ETT = ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")
"""Variables of the four ETT files; OT is the target."""
_ETT_FILE = re.compile(r"ETT[hm][12]", re.IGNORECASE)


def benchmark_columns(path: str | Path) -> tuple[str, ...] | None:
    """Return the required columns of a benchmark file, in order; None for other tables.

    >>> benchmark_columns("data/etth2.csv") == ETT, benchmark_columns("weather.csv")
    (True, None)
    """
    return ETT if _ETT_FILE.fullmatch(Path(path).stem) else None


@dataclass(frozen=True)
class VariableTable:
    """Multivariate time series without gaps, one row per step.

    Attributes:
        name: file stem.
        columns: names of the variables.
        values: values in float64.
        source: path of the file.
        freq: pandas frequency; None if unknown.
    """

    name: str
    columns: tuple[str, ...]
    values: Float[np.ndarray, "time variables"]
    source: str
    freq: str | None = None

    @property
    def digest(self) -> str:
        """Return 16 hexadecimal digits of the SHA-256 of columns and values, independent of the file's path."""
        found = hashlib.sha256("\0".join(self.columns).encode())
        found.update(np.ascontiguousarray(self.values, dtype="<f8").tobytes())
        return found.hexdigest()[:16]


def check_digest(recorded: str, current: str, source: str) -> None:
    """Refuse a run that was made on another table; one recorded without a digest passes.

    Raises:
        DataError: the digests differ.
    """
    if recorded not in ("", current):
        raise DataError(
            f"{source} is of another table: give the table that it was run on, or choose another folder for the runs."
        )


def read_table(path: str | Path, columns: Sequence[str] | None = None, *, ignore_times: bool = False) -> VariableTable:
    """Read a CSV with one time column, ``date``, and one column per variable.

    Args:
        path: the file.
        columns: columns to read, in this order (default: all but the time).
        ignore_times: treat each row as one step regardless of its time, as benchmarks do for irregular files (Weather
            repeats a time).

    Raises:
        DataError: the file is unreadable, a column is missing, or a value is missing.
    """
    found = read_series(
        path, format="wide_csv", columns=Columns(time=TIME), numbers=False, dated=False, ignore_times=ignore_times
    )
    series = {one.item_id: one for one in found}
    wanted = list(columns) if columns is not None else list(series)
    missing = [name for name in wanted if name not in series]
    if missing or not wanted:
        named = f"no column {', '.join(map(repr, missing))}" if missing else "no variable"
        raise DataError(f"{path} has {named}; its variables are {', '.join(series)}.")
    values = np.stack([series[name].target for name in wanted], axis=1)
    for step, variable in np.argwhere(np.isnan(values))[:1].tolist():
        one = series[wanted[variable]]
        when = f"row {step + 2}" if ignore_times or one.stamp is None else one.timestamps(step, 1)[0]
        raise DataError(
            f"{path}: {one.item_id!r} has no value at {when} ({np.isnan(values).sum()} such in the table): fill or "
            "cut it first."
        )
    return VariableTable(Path(path).stem, tuple(wanted), values, str(path), getattr(found[0].start, "freqstr", None))
