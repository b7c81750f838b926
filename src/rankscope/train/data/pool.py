"""Series of the user's files, as a source of training windows beside the generated ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from rankscope.errors import DataError

TRIES = 20
"""Times that a window is drawn anew when it holds no observed value at all."""


def random_window(
    rng: np.random.Generator, values: Float[np.ndarray, " time"], length: int, least: int
) -> Float[np.ndarray, " window"]:
    """Cut a random window out of a series.

    A series of at least ``length`` values gives any of its windows with equal odds. A shorter one gives a window that
    ends anywhere in its second half, at least ``least`` values in, and is missing before its beginning.

    Args:
        rng: source of all randomness.
        values: the series, at least ``least`` values.
        length: values in the window.
        least: fewest values of the series in the window, at most ``length``.

    Returns:
        The window in float32, NaN at its beginning where the series is too short.

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
    """Series of any lengths in one array, so that a worker process gets them cheaply.

    Attributes:
        values: all series, one after the other, in float32 with NaN for missing values.
        starts: where each begins in ``values``, and the end of the last.
        first: number of the first series of each file, and the number of series.
        least: fewest observed values that a series has.
        short: series left out because they have fewer.
        constant: series left out because all their observed values are equal.
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
        """Cut ``n`` windows: a file, a series of it, and a window of that, each with equal odds.

        Returns:
            float32 array (series, time), each row with at least one observed value; see `random_window`.

        Raises:
            DataError: the files are nothing but gaps at this length.
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


def read_pool(files: Sequence[str | Path], least: int) -> SeriesPool:
    """Read the series of files in any layout that `rankscope.series` names.

    Series that cannot teach anything are left out and counted: those with fewer than ``least`` observed values, and
    constant ones.

    Args:
        files: at least one.
        least: fewest observed values of a series that is kept.

    Raises:
        DataError: a file is missing, unreadable, without rows or without numbers, a series in it is empty, all-NaN
            or infinite somewhere, or no series of a file is left.
    """
    from rankscope.series import read_series

    kept: list[np.ndarray] = []
    first, short, constant = [0], 0, 0
    for file in files:
        table = [one.target for one in read_series(file, dated=False)]
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
