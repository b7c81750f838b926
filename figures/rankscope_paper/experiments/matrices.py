"""Random matrices with prescribed singular values (App. F), and the error of attention truncated as Theorem 3 says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

Generator = np.random.Generator

READINGS = {"1e-5": 1e-5, "exp(-5)": math.exp(-5)}
"""The smallest singular value under both readings of "from e−5 to e0" (App. F.1)."""


def generator(seed: int, *more: int) -> Generator:
    """Random numbers that are a function of a seed and of what it is for."""
    return np.random.default_rng([seed, *more])


def log_uniform(count: int, smallest: float) -> Float[np.ndarray, " count"]:
    """Singular values from 1 down to ``smallest``, evenly spaced on a logarithmic axis.

    >>> log_uniform(3, 0.01).round(12).tolist()
    [1.0, 0.1, 0.01]
    """
    return np.geomspace(1.0, smallest, count)


def gaussian(rng: Generator, rows: int, columns: int) -> Float[Tensor, "rows columns"]:
    """Independent normal numbers, float64."""
    return torch.from_numpy(rng.standard_normal((rows, columns)))


def orthonormal(rng: Generator, rows: int, columns: int) -> Float[Tensor, "rows columns"]:
    """Orthonormal columns, drawn uniformly: the Q of a Gaussian matrix, float64.

    Q comes from a Cholesky factor of the Gram matrix, twice: a Gaussian matrix is so well conditioned, unless it is
    square, that the result is orthonormal to rounding, at the speed of matrix products.
    """
    drawn = gaussian(rng, rows, columns)
    if columns * 2 > rows:
        q, r = torch.linalg.qr(drawn)
        # R's diagonal must be positive, or the distribution depends on how LAPACK chooses signs
        return q * torch.where(r.diagonal() < 0, -1.0, 1.0)
    for _ in range(2):
        factor = torch.linalg.cholesky(drawn.T @ drawn)
        drawn = torch.linalg.solve_triangular(factor, drawn.T, upper=False).T
    return drawn.contiguous()


BLOCK = 256
"""Queries whose softmax is taken at once; their scores stay in the cache."""


@dataclass(frozen=True)
class Layer:
    """A random attention layer and its input X = U diag(σ) Vᵀ, in the basis of the singular vectors.

    Attributes:
        v: V, orthonormal columns, float32.
        scores: diag(σ) Uᵀ W_Qᵀ W_K U diag(σ) / √d: the scores are V·this·Vᵀ, and cutting both to their leading r
            rows and columns is what truncating W_Q and W_K to rank r does.
        values: W_V U diag(σ), float32.
    """

    v: Float[Tensor, "tokens d_model"]
    scores: Float[Tensor, "d_model d_model"]
    values: Float[Tensor, "d_model d_model"]


def random_layer(rng: Generator, sigma: Float[np.ndarray, " d_model"], tokens: int) -> Layer:
    """Draw X with these singular values, and W_Q, W_K, W_V to which Theorem 3 applies.

    W_V has independent normal entries, ‖W_V‖₂ ≈ 2√d; those of W_Q and W_K have variance d^{−1/2}, so that
    ‖W_Qᵀ W_K‖₂ ≈ 4√d: both norms are C√d with the same C at every width, as the theorem asks.
    """
    d = len(sigma)
    s = torch.from_numpy(np.asarray(sigma, dtype=np.float64))
    u, v = orthonormal(rng, d, d), orthonormal(rng, tokens, d)
    q, k, w = (gaussian(rng, d, d) for _ in range(3))
    us = u * s
    scores = (q @ us).T @ (k @ us) / d**0.5 / d**0.5  # the second root is the variance of W_Q and W_K
    return Layer(v.float(), scores.float(), (w @ us).float())


def truncation_errors(layer: Layer, ranks: Sequence[int]) -> Float[np.ndarray, " ranks"]:
    """‖Y − Ỹ‖_F for W̃ = W U_r U_rᵀ in all three matrices, for every r.

    From one rank to the next the scores of all pairs of tokens change by a matrix of rank 2Δr, and only r columns of
    V take part in the product with the softmax. The difference of the two softmax matrices is formed entry by entry
    before anything is summed, so float32 loses nothing that matters.

    Args:
        layer: what is truncated.
        ranks: ascending, each in 1 … d_model − 1.
    """
    v, tokens = layer.v, len(layer.v)
    whole = v @ (v @ layer.scores).T
    whole = torch.softmax(whole, dim=-1, out=whole)
    mixed = whole @ v
    cut = torch.zeros_like(whole)
    work = torch.empty(min(BLOCK, tokens), tokens)
    errors, before = [], 0
    for rank in ranks:
        _extend(cut, layer, before, rank)
        before = rank
        left = mixed.clone()
        for start in range(0, tokens, BLOCK):
            rows = slice(start, min(start + BLOCK, tokens))
            soft = torch.softmax(cut[rows], dim=-1, out=work[: rows.stop - rows.start])
            torch.sub(whole[rows], soft, out=soft)
            left[rows, :rank] = soft @ v[:, :rank]
        errors.append(float(torch.linalg.vector_norm(left @ layer.values.T, dtype=torch.float64)))
    return np.array(errors)


def _extend(cut: Float[Tensor, "tokens tokens"], layer: Layer, before: int, rank: int) -> None:
    """Turn the scores at rank ``before`` into those at ``rank``; row = query, column = key."""
    v, b = layer.v, layer.scores
    new = v[:, before:rank]
    left = torch.cat([new, v[:, :before] @ b[before:rank, :before].T], dim=1)
    right = torch.cat([v[:, :rank] @ b[:rank, before:rank], new], dim=1)
    cut.addmm_(left, right.T)
