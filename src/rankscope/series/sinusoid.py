"""Sinusoids of random period and phase."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def sinusoids(n: int, length: int, rng: np.random.Generator) -> Float[np.ndarray, "series time"]:
    """Unit-amplitude ``sin(2πt/p + φ)``, period p log-uniform from 4 steps to the whole length, φ uniform.

    A log-uniform period gives every octave the same weight; below 4 steps a sampled sinusoid stops looking
    smooth. A length under 5 leaves the period at 4 steps.

    >>> sinusoids(3, 8, np.random.default_rng(0)).shape
    (3, 8)
    """
    period = np.exp(rng.uniform(np.log(4.0), np.log(max(length, 4)), size=(n, 1)))
    phase = rng.uniform(0.0, 2 * np.pi, size=(n, 1))
    return np.sin(2 * np.pi * np.arange(length) / period + phase)
