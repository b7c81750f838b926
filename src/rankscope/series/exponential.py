"""Exponentials of random rate, growing and decaying."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def exponentials(n: int, length: int, rng: np.random.Generator) -> Float[np.ndarray, "series time"]:
    """``exp(λ t/(length − 1))`` with λ uniform on [−5, 5], so the ends differ by at most e⁵ ≈ 148."""
    rate = rng.uniform(-5.0, 5.0, size=(n, 1))
    return np.exp(rate * np.arange(length) / max(length - 1, 1))
