"""Random matrices with prescribed singular values, as App. F draws them."""

from __future__ import annotations

import math

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
