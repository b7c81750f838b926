"""Training windows from the user's series files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from rankscope.errors import DataError
from rankscope.series import Columns, read_series

TRIES = 20
"""Retries for windows without observed values."""


def random_window(
    rng: np.random.Generator, values: Float[np.ndarray, " time"], length: int, least: int
) -> Float[np.ndarray, " window"]:
    """Draw a random window of a series.

    Windows of a series with at least ``length`` values are equally likely. For a shorter series, the window ends in its
    second half, after at least ``least`` values, and is left-padded with NaN.

    Args:
        rng: source of all randomness.
        values: the series, at least ``least`` values.
        length: values in the window.
        least: minimum values of the series in the window, at most ``length``.

    Returns:
        Window in float32, left-padded with NaN for short series.

    >>> random_window(np.random.default_rng(0), np.arange(3.0), 4, least=3)
    array([nan,  0.,  1.,  2.], dtype=float32)
    """
    earliest = length if len(values) >= length else max(least, len(values) // 2)
    end = int(rng.integers(earliest, len(values) + 1))
    window = np.full(length, np.nan, dtype=np.float32)
    taken = min(end, length)
    window[length - taken :] = values[end - taken : end]
    return window


@dataclass(frozen=True)
class SeriesPool:
    """Series of any lengths in one array, cheap to share with worker processes.

    Attributes:
        values: concatenated series in float32, with NaN for missing values.
        starts: start offsets in ``values``, and the end of the last series.
        first: index of the first series of each file, and the number of series.
        least: minimum observed values per series.
        short: number of skipped series with fewer values.
        constant: number of skipped constant series.
        sources: the files, for messages.
    """

    values: Float[np.ndarray, " value"]
    starts: Int[np.ndarray, " begins"]
    first: Int[np.ndarray, " files"]
    least: int
    short: int
    constant: int
    sources: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def windows(self, rng: np.random.Generator, n: int, length: int) -> Float[np.ndarray, "series time"]:
        """Draw ``n`` windows: a uniform file, a uniform series of it, and a random window.

        Returns:
            float32 array (series, time), each row with at least one observed value; see `random_window`.

        Raises:
            DataError: hardly any window of this length has observed values.
        """
        out = np.empty((n, length), dtype=np.float32)
        for row in range(n):
            for _ in range(TRIES):
                file = int(rng.integers(len(self.first) - 1))
                series = int(rng.integers(self.first[file], self.first[file + 1]))
                values = self.values[self.starts[series] : self.starts[series + 1]]
                out[row] = random_window(rng, values, length, min(self.least, length))
                if not np.isnan(out[row]).all():
                    break
            else:
                raise DataError(
                    f"{', '.join(self.sources)}: hardly any window of {length} values has an observed one: "
                    "fill the gaps, or leave those series out."
                )
        return out


def read_pool(
    files: Sequence[str | Path], least: int, columns: Columns | None = None, freq: str | None = None
) -> SeriesPool:
    """Read series files in any layout supported by `rankscope.series`.

    Series with fewer than ``least`` observed values and constant series are skipped and counted.

    Args:
        files: at least one.
        least: minimum observed values per series.
        columns: non-default column names, the same in all files.
        freq: frequency of all files (default: inferred).

    Raises:
        DataError: a file is missing, unreadable, without rows or without numbers, a series in it is empty, all-NaN
            or infinite somewhere, or no series of a file is left.
    """
    kept: list[np.ndarray] = []
    first, short, constant = [0], 0, 0
    for file in files:
        table = [one.target for one in read_series(file, freq=freq, columns=columns, dated=False)]
        long = [values for values in table if int((~np.isnan(values)).sum()) >= least]
        useful = [values for values in long if np.nanmin(values) < np.nanmax(values)]
        if not useful:
            longest = max(int((~np.isnan(values)).sum()) for values in table)
            raise DataError(
                f"{file} has no series to train on: of {len(table)}, {len(table) - len(long)} have fewer than {least} "
                f"observed values (the longest has {longest}), and {len(long)} are constant."
            )
        short += len(table) - len(long)
        constant += len(long) - len(useful)
        kept += [values.astype(np.float32) for values in useful]
        first.append(len(kept))
    starts = np.concatenate([[0], np.cumsum([len(values) for values in kept])]).astype(np.int64)
    return SeriesPool(
        np.concatenate(kept), starts, np.array(first), least, short, constant, tuple(str(file) for file in files)
    )
