"""The constant signal (0, …, 0) of the paper's Fig. 5c."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def constants(n: int, length: int, rng: np.random.Generator) -> Float[np.ndarray, "series time"]:
    """Zeros: every series is the same, so one is as informative as many.

    All time steps become the same token (or patch), so whatever rank a layer's input has above 1 was made by
    the model out of its special tokens (end of sequence, REG) and relative position biases.
    """
    return np.zeros((n, length))
