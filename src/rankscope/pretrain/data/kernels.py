"""KernelSynth: Gaussian-process draws from kernels composed at random (Chronos paper, arXiv 2403.07815, appendix).

One kernel is factorised once and gives many draws: the cost of a draw falls from a factorisation to a matrix-vector
product. The trade is that draws of one kernel share their periods and length scales; a bank of many kernels, and the
mixing that follows, keep the corpus varied.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg
from jaxtyping import Float

from rankscope.progress import Progress, silent

Kernel = Float[np.ndarray, "time time"]

PERIODS = (4, 5, 7, 12, 14, 24, 26, 30, 48, 52, 60, 96, 120, 144, 168, 336, 365)
MOST_KERNELS = 5
JITTER = 1e-6


def random_kernel(rng: np.random.Generator, length: int, most: int = MOST_KERNELS) -> Kernel:
    """Compose 1 to ``most`` base kernels by random sums and products.

    Args:
        rng: source of all randomness.
        length: number of time points, placed at 0 … 1.
        most: the largest number of base kernels (J of the paper).

    Returns:
        Covariance matrix (time, time), symmetric positive semi-definite.
    """
    t = np.linspace(0.0, 1.0, length)
    names = list(BASE)
    kernel = BASE[names[rng.integers(len(names))]](rng, t)
    for _ in range(int(rng.integers(0, most))):
        other = BASE[names[rng.integers(len(names))]](rng, t)
        kernel = kernel + other if rng.random() < 0.5 else kernel * other
    return kernel


def draw(rng: np.random.Generator, kernel: Kernel, n: int) -> Float[np.ndarray, "series time"]:
    """Draw ``n`` zero-mean paths of one kernel from a single Cholesky factor.

    Args:
        rng: source of all randomness.
        kernel: covariance (time, time).
        n: number of paths.

    Returns:
        Paths (series, time).
    """
    size = len(kernel)
    scale = max(float(np.trace(kernel)) / size, 1e-12)
    jitter = JITTER * scale
    for _ in range(6):
        try:
            factor = scipy.linalg.cholesky(kernel + jitter * np.eye(size), lower=True, check_finite=False)
            return (factor @ rng.normal(size=(size, n))).T
        except np.linalg.LinAlgError:
            jitter *= 10
    values, vectors = scipy.linalg.eigh(kernel)
    return ((vectors * np.sqrt(np.maximum(values, 0))) @ rng.normal(size=(size, n))).T


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
        paths = draw(rng, random_kernel(rng, length), draws)
        spread = np.maximum(paths.std(axis=1, keepdims=True), 1e-9)
        bank[index * draws : (index + 1) * draws] = (paths - paths.mean(axis=1, keepdims=True)) / spread
        progress(index + 1, kernels, "drawing kernels")
    rng.shuffle(bank)
    return bank


def _distance(t: np.ndarray) -> Kernel:
    return np.abs(t[:, None] - t[None, :])


def _constant(rng: np.random.Generator, t: np.ndarray) -> Kernel:
    return np.ones((len(t), len(t)))


def _white(rng: np.random.Generator, t: np.ndarray) -> Kernel:
    return float(rng.choice([0.1, 1.0])) * np.eye(len(t))


def _linear(rng: np.random.Generator, t: np.ndarray) -> Kernel:
    return float(rng.choice([0.0, 1.0, 10.0])) ** 2 + np.outer(t, t)


def _rbf(rng: np.random.Generator, t: np.ndarray) -> Kernel:
    scale = float(rng.choice([0.1, 1.0, 10.0]))
    return np.exp(-0.5 * (_distance(t) / scale) ** 2)


def _rational_quadratic(rng: np.random.Generator, t: np.ndarray) -> Kernel:
    shape = float(rng.choice([0.1, 1.0, 10.0]))
    return (1 + _distance(t) ** 2 / (2 * shape)) ** -shape


def _periodic(rng: np.random.Generator, t: np.ndarray) -> Kernel:
    period = float(rng.choice(PERIODS)) / len(t)
    return np.exp(-2 * np.sin(np.pi * _distance(t) / period) ** 2)


BASE: dict[str, Callable[[np.random.Generator, np.ndarray], Kernel]] = {
    "constant": _constant,
    "white": _white,
    "linear": _linear,
    "rbf": _rbf,
    "rational-quadratic": _rational_quadratic,
    "periodic": _periodic,
    "periodic-again": _periodic,
}
"""Base kernels by name; the periodic one stands twice because its bank of periods is the largest."""
