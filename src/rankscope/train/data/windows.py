"""Windows of stored series, missing where a series has not begun yet."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


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
