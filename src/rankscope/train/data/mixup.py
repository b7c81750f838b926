"""TSMixup: convex combinations of mean-scaled series (Chronos paper, arXiv 2403.07815, section 4.1 and Algorithm 1)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

Series = Float[np.ndarray, "series time"]

MOST_MIXED = 3
"""K of the paper: the largest number of series in a mixture."""
CONCENTRATION = 1.5
"""α of the paper: the symmetric Dirichlet concentration of the weights."""


def mean_scaled(series: Series) -> Series:
    """Divide each series by the mean of its absolute observed values; one of zeros stays as it is."""
    seen = ~np.isnan(series)
    total = np.where(seen, np.abs(series), 0.0).sum(axis=1, keepdims=True)
    scale = total / np.maximum(seen.sum(axis=1, keepdims=True), 1)
    return series / np.where(scale > 0, scale, 1.0)


def mixed_counts(rng: np.random.Generator, n: int, most: int = MOST_MIXED) -> Int[np.ndarray, " mixture"]:
    """Draw how many series go into each of ``n`` mixtures: 1 … K with equal odds."""
    return rng.integers(1, most + 1, n)


def mix(
    rng: np.random.Generator,
    parts: Series,
    counts: Int[np.ndarray, " mixture"],
    concentration: float = CONCENTRATION,
) -> Float[np.ndarray, "mixture time"]:
    """Mix each run of ``counts`` consecutive parts, every part in one mixture.

    Args:
        rng: source of the weights.
        parts: Σ counts series, missing outside the span that is mixed: each is scaled by what is there.
        counts: parts of each mixture, at least 1.
        concentration: Dirichlet concentration α of the weights.

    Returns:
        Mixtures (mixture, time), missing where any of their parts is.

    >>> parts = np.array([[1.0, 3.0], [np.nan, 5.0]])
    >>> mix(np.random.default_rng(0), parts, np.array([1, 1]))
    array([[0.5, 1.5],
           [nan, 1. ]])
    """
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    share = rng.standard_gamma(concentration, len(parts))
    weights = share / np.repeat(np.add.reduceat(share, first), counts)
    return np.add.reduceat(weights[:, None] * mean_scaled(parts), first, axis=0)


def mix_within(rng: np.random.Generator, series: Series, share: float, concentration: float) -> Series:
    """Replace a share of a batch by mixtures of 2 or 3 of its series, drawn with replacement.

    What is not replaced plays the part of the paper's mixtures of one.

    Args:
        rng: source of all randomness.
        series: the batch (series, time).
        share: share of the batch to replace.
        concentration: Dirichlet concentration of the weights.

    Returns:
        The batch with mixtures in place (series, time).
    """
    n = len(series)
    chosen = np.flatnonzero(rng.random(n) < share)
    if len(chosen) == 0:
        return series
    scaled = mean_scaled(series)
    partners = rng.integers(0, n, (len(chosen), MOST_MIXED))
    weights = rng.dirichlet(np.full(MOST_MIXED, concentration), len(chosen))
    pairs = rng.random(len(chosen)) < 0.5
    weights[pairs, MOST_MIXED - 1] = 0.0  # what is left of a Dirichlet vector, scaled, is one of the other parts
    weights /= weights.sum(axis=1, keepdims=True)
    mixed = series.copy()
    mixed[chosen] = np.einsum("nk,nkt->nt", weights, scaled[partners])
    return mixed
