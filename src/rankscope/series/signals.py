"""Corpora: synthetic signals, or windows of a user's series, one per row of a matrix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.errors import DataError, OptionError, check_count, unknown_choice
from rankscope.series.layout import Columns
from rankscope.series.reader import read_series


def corpus(
    kind: str,
    n: int,
    length: int,
    seed: int = 0,
    file: str | Path | None = None,
    *,
    columns: Columns | None = None,
    freq: str | None = None,
) -> Float[Tensor, "series time"]:
    """Generate a corpus of ``n`` series of ``length`` values in float32, deterministic for a seed.

    Args:
        kind: a key of `SIGNALS`, or ``user`` for windows of the series in ``file``.
        n: number of series.
        length: values per series.
        seed: random seed.
        file: Parquet, CSV, JSONL or Arrow; only with ``user``. See `rankscope.series`.
        columns: non-default column names of the file.
        freq: frequency of the file (default: inferred).

    Raises:
        OptionError: unknown kind, ``n`` or ``length`` below 1, or a file given for a generated signal.
        DataError: the file is unusable, or all its series are shorter than ``length``.

    >>> corpus("sine", n=4, length=16).shape
    torch.Size([4, 16])
    """
    for name, value in (("n", n), ("length", length)):
        check_count(name, value)
    check_count("seed", seed, 0)
    if kind != "user" and file is not None:
        raise OptionError(f"file {str(file)!r} belongs to the signal 'user', not to {kind!r}.")
    rng = np.random.default_rng(seed)
    if kind == "user":
        if file is None:
            raise DataError("signal 'user' needs a file: Parquet, CSV, JSONL or Arrow.")
        values = windows(file, n, length, rng, columns, freq)
    elif kind in SIGNALS:
        values = SIGNALS[kind](n, length, rng)
    else:
        raise OptionError(unknown_choice("signal", kind, [*SIGNALS, "user"]))
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def windows(
    file: str | Path,
    n: int,
    length: int,
    rng: np.random.Generator,
    columns: Columns | None = None,
    freq: str | None = None,
) -> Float[np.ndarray, "series time"]:
    """Sample ``n`` windows of ``length`` consecutive values from random series that are long enough.

    Missing values stay NaN; the models mask them.

    Raises:
        DataError: the file is unusable, all series are shorter than ``length``, or hardly any window of that length
            has an observed value.
    """
    series = [one.target for one in read_series(file, freq=freq, columns=columns, dated=False)]
    long_enough = [values for values in series if values.size >= length]
    if not long_enough:
        longest = max(values.size for values in series)
        raise DataError(
            f"{file}: too short, the longest series has {longest} values but length is {length}: "
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
    raise DataError(f"{file}: hardly any window of length {length} has an observed value: fill the gaps first.")


def sinusoids(n: int, length: int, rng: np.random.Generator) -> Float[np.ndarray, "series time"]:
    """Generate unit-amplitude ``sin(2πt/p + φ)`` with period p log-uniform in [4, length] and φ uniform.

    A log-uniform period weights octaves equally; below 4 steps per period a sampled sinusoid is not smooth. For lengths
    below 5 the period is 4 steps.
    """
    period = np.exp(rng.uniform(np.log(4.0), np.log(max(length, 4)), size=(n, 1)))
    phase = rng.uniform(0.0, 2 * np.pi, size=(n, 1))
    return np.sin(2 * np.pi * np.arange(length) / period + phase)


def exponentials(n: int, length: int, rng: np.random.Generator) -> Float[np.ndarray, "series time"]:
    """Generate ``exp(λ t/(length − 1))`` with λ uniform in [−5, 5]; the ends differ by a factor of at most e⁵ ≈ 148."""
    rate = rng.uniform(-5.0, 5.0, size=(n, 1))
    return np.exp(rate * np.arange(length) / max(length - 1, 1))


def constants(n: int, length: int, rng: np.random.Generator) -> Float[np.ndarray, "series time"]:
    """Generate zeros, the constant signal of the paper's Fig. 5c.

    All time steps map to the same token (or patch), so any rank above 1 of a layer input comes from special tokens (end
    of sequence, REG) and relative position biases.
    """
    return np.zeros((n, length))


def white_noise(n: int, length: int, rng: np.random.Generator) -> Float[np.ndarray, "series time"]:
    """Generate independent standard normal values."""
    return rng.standard_normal((n, length))


def mixed(n: int, length: int, rng: np.random.Generator) -> Float[np.ndarray, "series time"]:
    """Alternate sinusoids, exponentials and white noise, one third each, as in the paper's Fig. 2a."""
    out = np.empty((n, length))
    for start, make in enumerate((sinusoids, exponentials, white_noise)):
        count = len(range(start, n, 3))
        if count:
            out[start::3] = make(count, length, rng)
    return out


SIGNALS: dict[str, Callable[[int, int, np.random.Generator], np.ndarray]] = {
    "sine": sinusoids,
    "exponential": exponentials,
    "constant": constants,
    "noise": white_noise,
    "mixed": mixed,
}
"""Synthetic signals by name; `corpus` also accepts ``user``."""
TITLES = {
    "sine": "sinusoids",
    "exponential": "exponentials",
    "constant": "constant signals",
    "noise": "white noise",
    "mixed": "sinusoids, exponentials and white noise",
    "user": "series from a file",
}
"""Signals of a corpus in words."""
