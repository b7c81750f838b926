"""Quasimatrices: finitely many functions on [−1, 1], and their singular values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float
from numpy.polynomial import legendre

from rankscope.errors import OptionError

Functions = Callable[[np.ndarray], np.ndarray]
"""Points of [−1, 1], shape (n,) → values φ_i(x), shape (d, n)."""

TOLERANCE = 1e-10
_FIRST, _LAST = 16, 2048


def singular_values(
    functions: Functions, *, breaks: Sequence[float] = (), tol: float = TOLERANCE
) -> Float[np.ndarray, " d"]:
    """Singular values s_1 ≥ … ≥ s_d of the quasimatrix whose rows are functions on [−1, 1], in the L² norm.

    With Gauss–Legendre nodes x_t and weights w_t they are those of the matrix φ_i(x_t)√w_t. The number of nodes is
    doubled until no singular value moves by more than ``tol``·s_1. Between ``breaks``, where the functions have
    kinks, each piece has nodes of its own.

    Args:
        functions: values of all functions at given points, shape (d, points).
        breaks: points in (−1, 1) at which a function or a derivative jumps.
        tol: accuracy, relative to s_1.

    Raises:
        OptionError: a value is not finite, or 2048 nodes per piece are not enough.

    >>> singular_values(lambda x: np.stack([np.ones_like(x), x])).round(12).tolist()
    [1.414213562373, 0.816496580928]
    """
    edges = np.unique(np.clip([-1.0, *breaks, 1.0], -1.0, 1.0))
    before: np.ndarray | None = None
    count = _FIRST
    while count <= _LAST:
        values = np.linalg.svd(_weighted(functions, edges, count), compute_uv=False)
        if before is not None and len(before) == len(values):
            moved = float(np.abs(values - before).max(initial=0.0))
            if moved <= tol * max(values[0], np.finfo(float).tiny):
                return values
        before, count = values, 2 * count
    raise OptionError(
        f"singular values of the quasimatrix did not settle to {tol:g} with {_LAST} nodes per piece: "
        f"name the points where the functions have kinks (breaks), or raise tol."
    )


@functools.lru_cache(maxsize=16)
def _nodes(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss–Legendre nodes and weights; they cost an eigenvalue problem, so they are kept."""
    nodes, weights = legendre.leggauss(count)
    return nodes, weights


def _weighted(functions: Functions, edges: Float[np.ndarray, " edges"], count: int) -> Float[np.ndarray, "d points"]:
    nodes, weights = _nodes(count)
    half = np.diff(edges) / 2
    x = (edges[:-1] + half)[:, None] + half[:, None] * nodes
    values = np.asarray(functions(x.ravel()), dtype=np.float64)
    if not np.isfinite(values).all():
        raise OptionError("a function of the quasimatrix is not finite on [−1, 1]: check its poles and logarithms.")
    return values * np.sqrt((half[:, None] * weights).ravel())
