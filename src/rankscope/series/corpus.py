"""One entry point to every input corpus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.errors import DataError, OptionError, unknown_choice
from rankscope.series.constant import constants
from rankscope.series.exponential import exponentials
from rankscope.series.mixed import mixed
from rankscope.series.noise import white_noise
from rankscope.series.sinusoid import sinusoids
from rankscope.series.user import series_from_file, windows

SIGNALS: dict[str, Callable[[int, int, np.random.Generator], np.ndarray]] = {
    "sine": sinusoids,
    "exponential": exponentials,
    "constant": constants,
    "noise": white_noise,
    "mixed": mixed,
}
"""Generated signals by name; ``user`` is the other kind that `corpus` takes."""


def corpus(
    kind: str, n: int, length: int, seed: int = 0, file: str | Path | None = None
) -> Float[Tensor, "series time"]:
    """A corpus of ``n`` series of ``length`` values in float32, the same for the same seed.

    Args:
        kind: a key of `SIGNALS`, or ``user`` for windows of the series in ``file``.
        n: number of series.
        length: values per series.
        seed: of every random choice.
        file: Parquet, CSV, JSONL or Arrow; only with ``user``. See `rankscope.series.series_from_file`.

    Raises:
        OptionError: unknown kind, ``n`` or ``length`` below 1, or a file where none belongs.
        DataError: the file cannot be used, or no series in it is as long as ``length``.

    >>> corpus("sine", n=4, length=16).shape
    torch.Size([4, 16])
    """
    for name, value in (("n", n), ("length", length)):
        if value < 1:
            raise OptionError(f"{name} must be at least 1, got {value}.")
    if kind != "user" and file is not None:
        raise OptionError(f"file {str(file)!r} belongs to the signal 'user', not to {kind!r}.")
    rng = np.random.default_rng(seed)
    if kind == "user":
        if file is None:
            raise DataError("signal 'user' needs a file: Parquet, CSV, JSONL or Arrow.")
        values = windows(series_from_file(file), n, length, rng)
    elif kind in SIGNALS:
        values = SIGNALS[kind](n, length, rng)
    else:
        raise OptionError(unknown_choice("signal", kind, [*SIGNALS, "user"]))
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
