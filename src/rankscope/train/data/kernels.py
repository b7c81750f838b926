"""KernelSynth: Gaussian-process series, each from a kernel composed at random (Chronos paper, arXiv 2403.07815)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from rankscope.engine.progress import Progress, silent
from rankscope.train.data.base_kernels import random_composition
from rankscope.train.data.gaussian import draw


def kernelsynth(rng: np.random.Generator, n: int, length: int, draws: int = 1) -> Float[np.ndarray, "series time"]:
    """Draw KernelSynth series as the paper does: a kernel composed anew for each, one path of it, as it comes.

    Args:
        rng: source of all randomness.
        n: number of series.
        length: observations in each (paper: 1024).
        draws: paths of each kernel. More than one is faster still, at the price of series that share their kernel.

    Returns:
        Series (series, time) in float64, neither scaled nor centred; paths of one kernel stand together.
    """
    series = np.empty((n, length))
    for start in range(0, n, draws):
        count = min(draws, n - start)
        series[start : start + count] = draw(rng, random_composition(rng), count, length)
    return series


def standardised(series: Float[np.ndarray, "series time"]) -> Float[np.ndarray, "series time"]:
    """Each series with mean 0 and deviation 1; one that is constant to rounding becomes zeros."""
    centred = series - series.mean(axis=1, keepdims=True)
    spread = centred.std(axis=1, keepdims=True)
    rounding = 1e-9 * np.abs(series).max(axis=1, keepdims=True)
    return np.where(spread > rounding, centred / np.where(spread > rounding, spread, 1.0), 0.0)


def kernel_bank(
    seed: int, kernels: int, draws: int, length: int, progress: Progress = silent
) -> Float[np.ndarray, "series time"]:
    """Draw a bank of KernelSynth series: ``kernels`` random kernels, ``draws`` paths of each.

    Args:
        seed: the bank is a function of it.
        kernels: how many kernels to compose.
        draws: how many paths each gives.
        length: observations per series.
        progress: told after every kernel.

    Returns:
        float32 array (kernels · draws, time), standardised per series, shuffled.
    """
    rng = np.random.default_rng([seed, 71])
    bank = np.empty((kernels * draws, length), dtype=np.float32)
    for index in range(kernels):
        bank[index * draws : (index + 1) * draws] = standardised(kernelsynth(rng, draws, length, draws))
        progress(index + 1, kernels, "drawing kernels")
    rng.shuffle(bank)
    return bank
