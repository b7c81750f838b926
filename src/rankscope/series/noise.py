"""Gaussian white noise."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def white_noise(n: int, length: int, rng: np.random.Generator) -> Float[np.ndarray, "series time"]:
    """Independent standard normal values."""
    return rng.standard_normal((n, length))
