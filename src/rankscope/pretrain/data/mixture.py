"""The corpus: structured series, KernelSynth draws and TSMixup of both, shortened and punctured like real histories."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from rankscope.pretrain.data.seasonal import structured_series

Series = Float[np.ndarray, "series time"]
Bank = Float[np.ndarray, "draws longer"]


@dataclass(frozen=True)
class Mixture:
    """Shares of the corpus and how histories are spoiled.

    Attributes:
        kernel_share: share of series that come from the KernelSynth bank.
        mixup_share: share that are convex mixtures of 2 or 3 series (TSMixup), out of all.
        short_share: share of series whose history is cut to a random shorter length.
        shortest: the fewest observations a cut history keeps.
        missing_share: share of series with values missing at random.
        concentration: Dirichlet concentration of the mixing weights (Chronos paper: 1.5).
    """

    kernel_share: float = 0.15
    mixup_share: float = 0.15
    short_share: float = 0.35
    shortest: int = 8
    missing_share: float = 0.05
    concentration: float = 1.5


def corpus_batch(
    rng: np.random.Generator, n: int, context: int, horizon: int, mixture: Mixture, bank: Bank | None
) -> tuple[Float[np.ndarray, "series context"], Float[np.ndarray, "series horizon"]]:
    """Draw ``n`` training examples.

    Args:
        rng: source of all randomness; the batch is a function of its state.
        n: number of examples.
        context: longest history.
        horizon: observations to forecast.
        mixture: shares of the corpus.
        bank: KernelSynth series at least ``context + horizon`` long, or None for none.

    Returns:
        Histories (series, context) in float32 with NaN where there is no observation, and futures (series, horizon).
    """
    length = context + horizon
    kept = _kept(rng, n, context, mixture)
    series = structured_series(rng, n, length, kept + horizon)
    if bank is not None and mixture.kernel_share > 0:
        series = _with_kernels(rng, series, bank, mixture.kernel_share)
    series = tsmixup(rng, series, mixture.mixup_share, mixture.concentration)
    history = series[:, :context].astype(np.float32)
    future = series[:, context:].astype(np.float32)
    return _spoil(rng, history, kept, mixture), future


def tsmixup(rng: np.random.Generator, series: Series, share: float, concentration: float) -> Series:
    """Replace a share of the series by convex mixtures of 2 or 3 mean-scaled ones (TSMixup, arXiv 2403.07815).

    Args:
        rng: source of all randomness.
        series: the pool (series, time).
        share: share of the pool to replace.
        concentration: Dirichlet concentration of the weights.

    Returns:
        The pool with mixtures in place (series, time).
    """
    n = len(series)
    chosen = np.flatnonzero(rng.random(n) < share)
    if len(chosen) == 0:
        return series
    scale = np.abs(series).mean(axis=1, keepdims=True)
    scaled = series / np.where(scale > 0, scale, 1.0)
    partners = rng.integers(0, n, (len(chosen), 3))
    weights = rng.dirichlet(np.full(3, concentration), len(chosen))
    pairs = rng.random(len(chosen)) < 0.5
    weights[pairs, 2] = 0.0
    weights /= weights.sum(axis=1, keepdims=True)
    mixed = series.copy()
    mixed[chosen] = np.einsum("nk,nkt->nt", weights, scaled[partners])
    return mixed


def _with_kernels(rng: np.random.Generator, series: Series, bank: Bank, share: float) -> Series:
    n, length = series.shape
    chosen = np.flatnonzero(rng.random(n) < share)
    rows = rng.integers(0, len(bank), len(chosen))
    starts = rng.integers(0, bank.shape[1] - length + 1, len(chosen))
    windows = np.stack([bank[r, s : s + length] for r, s in zip(rows, starts, strict=True)]) if len(chosen) else None
    if windows is not None:
        level = np.exp(rng.uniform(np.log(0.3), np.log(30), (len(chosen), 1))) * (rng.random((len(chosen), 1)) < 0.7)
        series = series.copy()
        series[chosen] = windows + level
    return series


def _kept(rng: np.random.Generator, n: int, context: int, mixture: Mixture) -> Int[np.ndarray, " series"]:
    """Draw the length of each history: log-uniform for those that are cut."""
    least = min(mixture.shortest, context)
    kept = np.exp(rng.uniform(np.log(least), np.log(context), n)).astype(int)
    return np.where(rng.random(n) < mixture.short_share, kept, context)


def _spoil(rng: np.random.Generator, history: Series, kept: Int[np.ndarray, " series"], mixture: Mixture) -> Series:
    n, context = history.shape
    absent = np.arange(context)[None, :] < (context - kept)[:, None]
    rate = rng.uniform(0.01, 0.2, (n, 1)) * (rng.random((n, 1)) < mixture.missing_share)
    absent |= rng.random((n, context)) < rate
    absent[:, -1] = False
    history = history.copy()
    history[absent] = np.nan
    return history
