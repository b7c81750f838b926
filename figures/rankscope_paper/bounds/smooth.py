"""Embeddings in few directions: smooth ones of numbers (Theorem 1, Corollary 2), MLPs on patches (Theorem 2)."""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from jaxtyping import Float
from numpy.polynomial import chebyshev, legendre
from torch import Tensor

from rankscope.errors import OptionError


def theorem1_variation(variation: float, nu: int, d_model: int, j: int, tokens: int | None = None) -> float:
    """Bound on s_{j+1}, or with ``tokens`` = L on σ_{j+1}, where φ^(ν) has variation V (Thm 1 i).

    s_{j+1} ≤ 4V√d / (πν(j−1−ν)^ν) and σ_{j+1} ≤ 2V√(dL) / (πν(j−1−ν)^ν), ν + 1 < j ≤ d − 1. The proof needs no more
    than φ_i^{(ν−1)} absolutely continuous and φ_i^{(ν)} of bounded variation V.

    Raises:
        OptionError: j is outside its range, ν is below 1, or V is negative.
    """
    if nu < 1 or variation < 0:
        raise OptionError(f"Theorem 1 (i) needs ν ≥ 1 and V ≥ 0, got ν = {nu}, V = {variation:g}.")
    if not nu + 1 < j <= d_model - 1:
        raise OptionError(f"Theorem 1 (i) needs ν + 1 < j ≤ d − 1, got j = {j} with ν = {nu}, d = {d_model}.")
    return _scale(d_model, tokens) * variation / (math.pi * nu * (j - 1 - nu) ** nu)


MARGIN = 1.01
"""Granted to maxima over a grid."""


@functools.lru_cache(maxsize=256)
def spline_distance(nu: int, j: int) -> tuple[float, float]:
    """Largest distance of (x − t)₊^ν/ν! from polynomials of degree below j, over t in [−1, 1]: in L², and uniformly.

    By projection on Legendre and on Chebyshev polynomials, on a grid of 400 values of t, with 1 % granted for the grid.
    """
    found = []
    for nodes, weights, basis in (
        (*legendre.leggauss(400), legendre.legvander),
        (*chebyshev.chebgauss(400), chebyshev.chebvander),
    ):
        splines = np.clip(nodes - nodes[:, None], 0, None) ** nu / math.factorial(nu)
        directions = np.linalg.qr(basis(nodes, j - 1) * np.sqrt(weights)[:, None])[0]
        scaled = splines * np.sqrt(weights)
        rest = scaled - scaled @ directions @ directions.T
        found.append((np.linalg.norm(rest, axis=1).max(), np.abs(rest / np.sqrt(weights)).max()))
    return MARGIN * float(found[0][0]), MARGIN * float(found[1][1])


def theorem1_splines(variation: float, nu: int, d_model: int, j: int, tokens: int | None = None) -> float:
    """Sharper form of `theorem1_variation`: s_{j+1} ≤ V√d·E, σ_{j+1} ≤ V√(dL)·E', see `spline_distance` for E and E'.

    φ_i is a polynomial of degree ν and a mixture of truncated powers (x − t)₊^ν/ν! of total weight V, and no mixture
    lies farther from polynomials of degree j − 1 than its worst member.

    Raises:
        OptionError: as in `theorem1_variation`.
    """
    theorem1_variation(variation, nu, d_model, j, tokens)
    in_mean, uniform = spline_distance(nu, j)
    return variation * (in_mean * d_model**0.5 if tokens is None else uniform * (d_model * tokens) ** 0.5)


def theorem1_analytic(maximum: float, rho: float, d_model: int, j: int, tokens: int | None = None) -> float:
    """Bound on s_{j+1}, or with ``tokens`` = L on σ_{j+1}, of functions bounded by M on a Bernstein ellipse (Thm 1 ii).

    s_{j+1} ≤ 4M√d ρ^{1−j}/(ρ−1) and σ_{j+1} ≤ 2M√(dL) ρ^{1−j}/(ρ−1), 0 ≤ j ≤ d − 1, if every φ_i is analytic inside the
    ellipse with foci ±1 and semi-axes (ρ ± 1/ρ)/2 and |φ_i| ≤ M there.

    Raises:
        OptionError: j is outside its range, ρ is not above 1, or M is negative.
    """
    if rho <= 1 or maximum < 0:
        raise OptionError(f"Theorem 1 (ii) needs ρ > 1 and M ≥ 0, got ρ = {rho:g}, M = {maximum:g}.")
    if not 0 <= j <= d_model - 1:
        raise OptionError(f"Theorem 1 (ii) needs 0 ≤ j ≤ d − 1, got j = {j} with d = {d_model}.")
    return _scale(d_model, tokens) * maximum * rho ** (1 - j) / (rho - 1)


def bernstein_axes(rho: float) -> tuple[float, float]:
    """Semi-axes of the Bernstein ellipse: (ρ + 1/ρ)/2 along the real line, (ρ − 1/ρ)/2 across.

    >>> bernstein_axes(2.0)
    (1.25, 0.75)
    """
    return (rho + 1 / rho) / 2, (rho - 1 / rho) / 2


def swish_maximum(beta: float, rho: float) -> float:
    """Bound M on |z²/(1 + e^{−βz})| inside the Bernstein ellipse; infinite where it holds a pole ±iπ/β.

    With y = |Im βz|, |1 + e^{−βz}| ≥ 1 for y ≤ π/2 and ≥ sin y for π/2 < y < π (minimise over the real part), and |z|
    is at most the long semi-axis.

    >>> swish_maximum(1.0, 2.0), swish_maximum(10.0, 2.0)
    (1.5625, inf)
    """
    long, short = bernstein_axes(rho)
    angle = beta * short
    if angle >= math.pi:
        return math.inf
    return long**2 / (math.sin(angle) if angle > math.pi / 2 else 1.0)


def corollary2(beta: float, d_model: int, j: int, tokens: int | None = None, *, gate: float = 1.0) -> float:
    """Bound on s_{j+1}, or on σ_{j+1}, of Time-MoE's gated swish (Cor 2).

    φ_i(x) = swish_β(w_i x)·(v_i x) with |w_i v_i| ≤ 1 and |w_i| ≤ gate.

    With the paper's ρ = 1 + π/(2β) the whole ellipse lies in |Im βz| < π/2, so M = ((ρ + 1/ρ)/2)² ≤ (1 + π/(4β))²,
    and 2M/(ρ−1) ≤ 4β/π + 2 + π/(4β) ≤ (1 + 4/π)(β + 1/β): the constant of the printed O().

    The poles are at ±iπ/(βw_i). The paper drops w_i from the exponent; β stands for β·max|w_i| here.

    Raises:
        OptionError: β or the gate is not positive, or j is outside 0 … d − 1.
    """
    rho = 1 + math.pi / (2 * _steepness(beta, gate))
    return theorem1_analytic(swish_maximum(_steepness(beta, gate), rho), rho, d_model, j, tokens)


def corollary2_optimised(beta: float, d_model: int, j: int, tokens: int | None = None, *, gate: float = 1.0) -> float:
    """The smallest bound that Theorem 1 (ii) gives for the gated swish, over all ρ up to the poles.

    M(ρ) is `swish_maximum`; M ρ^{1−j}/(ρ−1) is evaluated at 400 values of ρ, evenly spaced in log(ρ−1) up to the poles,
    and at 100 more around the best. Every admissible ρ gives a valid bound, so the accuracy of the search does not
    matter for its truth.

    Raises:
        OptionError: as in `corollary2`.
    """
    steep = _steepness(beta, gate)
    top = math.log(math.pi / steep + math.hypot(1.0, math.pi / steep) - 1)
    grid = np.linspace(top - 8, top - 1e-9, 400)
    step = grid[1] - grid[0]
    best = grid[np.argmin(_log_bounds(grid, steep, j))]
    finer = np.linspace(best - step, min(best + step, top - 1e-9), 100)
    rho = 1 + math.exp(finer[np.argmin(_log_bounds(finer, steep, j))])
    return min(
        theorem1_analytic(swish_maximum(steep, rho), rho, d_model, j, tokens),
        corollary2(beta, d_model, j, tokens, gate=gate),
    )


def _log_bounds(log_gap: Float[np.ndarray, " n"], steep: float, j: int) -> Float[np.ndarray, " n"]:
    """Logarithm of M(ρ) ρ^{1−j}/(ρ−1) at many ρ, with M as in `swish_maximum`."""
    rho = 1 + np.exp(log_gap)
    angle = np.minimum(steep * (rho - 1 / rho) / 2, math.pi - 1e-12)
    below = np.where(angle > math.pi / 2, np.sin(angle), 1.0)
    return 2 * np.log((rho + 1 / rho) / 2) - np.log(below) - log_gap - (j - 1) * np.log(rho)


def _steepness(beta: float, gate: float) -> float:
    if beta <= 0 or gate <= 0:
        raise OptionError(f"Corollary 2 needs β > 0 and max|w_i| > 0, got β = {beta:g}, max|w_i| = {gate:g}.")
    return beta * gate


def _scale(d_model: int, tokens: int | None) -> float:
    return 4 * d_model**0.5 if tokens is None else 2 * (d_model * tokens) ** 0.5


def theorem2_count(eps: float, patch_size: int) -> float:
    """Bound (1 + ε⁻²)k on the number of singular values of Φ(X) above ε‖W_2‖₂‖W_1X‖₂ (Thm 2).

    Φ(X) = W_3X + W_2 ω(W_1X) with |ω(x)| ≤ |x| and X of k rows. Only the rank of X enters: k may be any number of rows
    that span those of X. Biases are one more row of ones in X: k + 1.

    Raises:
        OptionError: ε is not positive or k is below 1.

    >>> theorem2_count(0.5, 16)
    80.0
    """
    if eps <= 0 or patch_size < 1:
        raise OptionError(f"Theorem 2 needs ε > 0 and k ≥ 1, got ε = {eps:g}, k = {patch_size}.")
    return (1 + eps**-2) * patch_size


def theorem2_levels(
    phi: Float[Tensor, "d_model tokens"],
    w2: Float[Tensor, "d_model d_ff"],
    w1x: Float[Tensor, "d_ff tokens"],
) -> Float[Tensor, " k"]:
    """ε_j = σ_j(Φ)/(‖W_2‖₂‖W_1X‖₂), descending: as ε rises to ε_j, at least j singular values lie above ε.

    So Theorem 2 holds for every ε at once where j ≤ (1 + ε_j⁻²)k for every j.
    """
    unit = torch.linalg.matrix_norm(w2, 2) * torch.linalg.matrix_norm(w1x, 2)
    return torch.linalg.svdvals(phi) / unit
