"""KernelSynth: Gaussian-process series with random composite kernels (Chronos paper, arXiv 2403.07815).

The draws are exact, without a covariance matrix: a few FFTs in place of n³ operations. Every composition of the bank
has the form

    K(s, t) = Σ_P  P(s − t) · Q_P(s, t)  +  v(t) δ(s, t)

where P runs over products of periodic kernels (the empty one included), Q_P is analytic, and v is what white noise
leaves: sums and products of such kernels are such kernels again. Each factor has a cheap exact square root:

- Q_P is a polynomial to rounding: its values at a few dozen Chebyshev nodes say everything, and a pivoted Cholesky
  factor of those gives features F with Q_P = F Fᵀ;
- P is stationary and repeats after the least common multiple of its periods, so that its covariance is a circulant
  matrix, which the FFT diagonalises. Its eigenvalues are positive: exp(−2 sin²(πh/p)) = e⁻¹ exp(cos(2πh/p)) has
  the positive Fourier coefficients I_k(1)/e, and products convolve them. Where the common multiple is large, the
  periods are split: one part stays on its ring, the others modulate it by their few notable Fourier modes;
- a path with kernel P·Q_P is Σ_j F_j ⊙ Z_j with independent paths Z_j of kernel P.

The covariance of the draws is that of the definition to `TOLERANCE` times its largest variance; nothing is clipped
but rounding, and every series can have a kernel of its own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from jaxtyping import Complex, Float

from rankscope.engine import Progress, silent
from rankscope.train.data.kernels import SMOOTH, BaseKernel, Composition, grid, periodic_row, random_composition

TOLERANCE = 1e-9
"""Maximum error of the covariance, relative to the largest variance."""
DROPPED = 1e-12
"""Relative threshold below which features and Fourier modes are dropped, about the size of rounding errors."""
LONGEST_RING = 65536
"""Longest common multiple of periods on one ring; longer ones are split."""
NOTABLE = 25
"""Modes that a periodic kernel has above `DROPPED`, counting both signs: it bounds the cost of a split."""
SHARP = BaseKernel("rbf", 0.1)

Periods = tuple[int, ...]


@dataclass(frozen=True)
class Structure:
    """Composite kernel in the form above.

    Attributes:
        smooth: Q_P at all pairs of Chebyshev nodes, by the periods of P, sorted.
        noise: v, the variance of the white part at every observation.
    """

    smooth: dict[Periods, Float[np.ndarray, "node node"]]
    noise: Float[np.ndarray, " time"]


def draw(rng: np.random.Generator, kernel: Composition, n: int, length: int) -> Float[np.ndarray, "series time"]:
    """Draw independent zero-mean paths of one composed kernel.

    Args:
        rng: source of all randomness.
        kernel: the composition.
        n: number of paths; factors are shared, so more paths cost little.
        length: observations in each.

    Returns:
        Paths (series, time) in float64 whose covariance is the composition's to `TOLERANCE`.
    """
    form = structure(kernel, length)
    paths = np.zeros((n, length))
    for periods, values in form.smooth.items():
        features = interpolation(length, len(values)) @ _root(values)
        if not periods:
            paths += rng.standard_normal((n, features.shape[1])) @ features.T
            continue
        rank = features.shape[1]
        waves = _periodic_paths(rng, periods, n * rank, length).reshape(n, rank, length)
        paths += np.einsum("nrt,tr->nt", waves, features)
    if form.noise.any():
        paths += np.sqrt(form.noise) * rng.standard_normal((n, length))
    return paths


def structure(kernel: Composition, length: int) -> Structure:
    """Convert a composition to the form Σ P·Q + noise."""
    nodes = _nodes_for(kernel)
    total = _structure_of(kernel.bases[0], length, nodes)
    for times, base in zip(kernel.products, kernel.bases[1:], strict=True):
        other = _structure_of(base, length, nodes)
        total = _product(total, other, length) if times else _sum(total, other)
    return total


@functools.lru_cache(maxsize=32)
def interpolation(length: int, nodes: int) -> Float[np.ndarray, "time node"]:
    """Return the barycentric interpolation matrix from Chebyshev nodes to observations."""
    angle = (2 * np.arange(nodes) + 1) * np.pi / (2 * nodes)
    weight = np.sin(angle) * np.where(np.arange(nodes) % 2, -1.0, 1.0)
    distance = grid(length)[:, None] - _nodes(nodes)[None, :]
    hit = distance == 0
    ratio = weight / np.where(hit, 1.0, distance)
    matrix = ratio / ratio.sum(axis=1, keepdims=True)
    return np.where(hit.any(axis=1, keepdims=True), hit.astype(float), matrix)


def _nodes(count: int) -> Float[np.ndarray, " node"]:
    return 0.5 + 0.5 * np.cos((2 * np.arange(count) + 1) * np.pi / (2 * count))


def _nodes_for(kernel: Composition) -> int:
    """Return the number of nodes that resolve the sharpest product: 48, or more for the narrow RBF and its powers."""
    sharp = sum(base == SHARP for base in kernel.bases)
    return 48 if sharp == 0 else 48 + 24 * sharp


def _structure_of(base: BaseKernel, length: int, nodes: int) -> Structure:
    if base.name == "white":
        return Structure({}, np.full(length, base.value))
    if base.name == "periodic":
        return Structure({(int(base.value),): np.ones((nodes, nodes))}, np.zeros(length))
    x = _nodes(nodes)
    return Structure({(): SMOOTH[base.name](x[:, None], x[None, :], base.value)}, np.zeros(length))


def _sum(a: Structure, b: Structure) -> Structure:
    smooth = dict(a.smooth)
    for periods, values in b.smooth.items():
        smooth[periods] = smooth[periods] + values if periods in smooth else values
    return Structure(smooth, a.noise + b.noise)


def _product(a: Structure, b: Structure, length: int) -> Structure:
    smooth: dict[Periods, np.ndarray] = {}
    for first, one in a.smooth.items():
        for second, other in b.smooth.items():
            periods = tuple(sorted(first + second))
            both = one * other
            smooth[periods] = smooth[periods] + both if periods in smooth else both
    noise = a.noise * b.noise
    if b.noise.any():
        noise = noise + b.noise * _variance(a, length)
    if a.noise.any():
        noise = noise + a.noise * _variance(b, length)
    return Structure(smooth, noise)


def _variance(form: Structure, length: int) -> Float[np.ndarray, " time"]:
    """Return the diagonal of the noise-free part; every P is 1 at lag 0."""
    if not form.smooth:
        return np.zeros(length)
    values = sum(form.smooth.values(), np.zeros(()))
    basis = interpolation(length, len(values))
    return np.maximum(np.einsum("ti,ij,tj->t", basis, values, basis, optimize=True), 0.0)


def _root(values: Float[np.ndarray, "node node"]) -> Float[np.ndarray, "node rank"]:
    """Compute a pivoted Cholesky factor, stopped when the residual is at rounding level."""
    top = float(np.diag(values).max())
    factor, pivots, rank, _ = scipy.linalg.lapack.dpstrf(values, tol=DROPPED * top, lower=1)
    root = np.zeros((len(values), rank))
    root[pivots - 1] = np.tril(factor)[:, :rank]
    return root


def _periodic_paths(
    rng: np.random.Generator, periods: Periods, n: int, length: int
) -> Float[np.ndarray, "series time"]:
    """Draw paths of a product of periodic kernels; real and imaginary part of a complex path are independent."""
    complex_paths = _complex_paths(rng, _rings(periods), (n + 1) // 2, length)
    return np.concatenate([complex_paths.real, complex_paths.imag])[:n]


def _complex_paths(
    rng: np.random.Generator, rings: tuple[Periods, ...], n: int, length: int
) -> Complex[np.ndarray, "series time"]:
    """Draw complex paths whose real and imaginary parts each have the product of periodic kernels as covariance."""
    if len(rings) == 1:
        size, modes, weights = _spectrum(rings[0])
        noise = np.zeros((n, size), dtype=complex)
        shape = (n, len(modes))
        noise[:, modes] = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) * weights
        once = np.fft.ifft(noise, axis=1, norm="forward")
        return once[:, np.arange(length) % size]
    size, modes, weights = _spectrum(rings[0])
    inner = _complex_paths(rng, rings[1:], n * len(modes), length).reshape(n, len(modes), length)
    waves = np.exp(2j * np.pi * (np.outer(modes, np.arange(length)) % size) / size) * weights[:, None]
    return np.einsum("nmt,mt->nt", inner, waves)


@functools.lru_cache(maxsize=4096)
def _rings(periods: Periods) -> tuple[Periods, ...]:
    """Split periods into groups with separate common multiples, minimising the cost of a path.

    The last group stays on its ring; each significant mode of the others needs another path of all later groups.
    """
    best = min(_partitions(tuple(sorted(set(periods)))), key=_cost)
    parts = [tuple(p for p in periods if p in part) for part in best]
    return tuple(sorted(parts, key=_modes_at_most))


def _partitions(items: Periods) -> Iterator[list[Periods]]:
    """Yield all partitions of up to J distinct items (at most 52)."""
    if len(items) <= 1:
        yield [items]
        return
    for rest in _partitions(items[1:]):
        yield [items[:1], *rest]
        for index, part in enumerate(rest):
            yield [*rest[:index], items[:1] + part, *rest[index + 1 :]]


def _cost(parts: list[Periods]) -> float:
    *outer, ring = sorted(parts, key=_modes_at_most)
    size = math.lcm(*ring)
    if max(math.lcm(*part) for part in parts) > LONGEST_RING:
        return math.inf
    return math.prod(_modes_at_most(part) for part in outer) * (size * math.log2(size + 1) / 4 + 1000)


def _modes_at_most(part: Periods) -> int:
    return min(math.lcm(*part), math.prod(min(p, NOTABLE) for p in part))


@functools.lru_cache(maxsize=4096)
def _spectrum(periods: Periods) -> tuple[int, np.ndarray, np.ndarray]:
    """Return the ring length, its significant frequencies, and the amplitudes of a unit-variance path."""
    size = math.lcm(*periods)
    power = np.fft.fft(periodic_row(periods, np.arange(size, dtype=float))).real / size
    assert power.min() > -DROPPED, "a product of periodic kernels has no negative power"
    modes = np.flatnonzero(power > DROPPED)
    return size, modes, np.sqrt(power[modes])


def kernelsynth(rng: np.random.Generator, n: int, length: int, draws: int = 1) -> Float[np.ndarray, "series time"]:
    """Draw KernelSynth series as in the paper: one path per random kernel, unscaled.

    Args:
        rng: source of all randomness.
        n: number of series.
        length: observations in each (paper: 1024).
        draws: paths per kernel; more than one is faster, but series then share kernels.

    Returns:
        Series (series, time) in float64, neither scaled nor centred; paths of a kernel are adjacent.
    """
    series = np.empty((n, length))
    for start in range(0, n, draws):
        count = min(draws, n - start)
        series[start : start + count] = draw(rng, random_composition(rng), count, length)
    return series


def standardised(series: Float[np.ndarray, "series time"]) -> Float[np.ndarray, "series time"]:
    """Standardise each series; series constant up to rounding become zeros."""
    centred = series - series.mean(axis=1, keepdims=True)
    spread = centred.std(axis=1, keepdims=True)
    rounding = 1e-9 * np.abs(series).max(axis=1, keepdims=True)
    return np.where(spread > rounding, centred / np.where(spread > rounding, spread, 1.0), 0.0)


def kernel_bank(
    seed: int, kernels: int, draws: int, length: int, progress: Progress = silent
) -> Float[np.ndarray, "series time"]:
    """Draw a bank of KernelSynth series: ``kernels`` random kernels, ``draws`` paths of each.

    Args:
        seed: random seed.
        kernels: number of kernels.
        draws: paths per kernel.
        length: observations per series.
        progress: progress callback.

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
