"""ε-ranks without singular values: count the eigenvalues of WWᵀ above ε²σ_1² by the signs of an LDLᵀ factorisation.

Sylvester's law of inertia: A = WWᵀ − τI and D of A = LDLᵀ have equally many positive eigenvalues, so those of D
count the σ_j with σ_j² > τ. At width 768 one factorisation costs about two thirds of a matrix product, all
eigenvalues cost four products, the Gram matrix and σ_1 about one each: counting at one ε is well faster than all
singular values, each further one costs a sixth of them (`benchmarks/results`).

**When the count is exact.** Everything that decides is float64. Rounding acts like a perturbation of WWᵀ by at most
about δσ_1² with δ = 1e-12 (usually 1e-15 to 1e-14), and σ_1² is known to a relative 1e-7, usually 1e-9 (2e-6 at
worst, where the two leading eigenvalues almost agree: see `largest_eigenvalue`). Apart from that case the count is
that of exact arithmetic whenever no σ_j/σ_1 lies within 1e-12/(2ε) + 5e-8·ε of ε: a gap of 5e-9 at ε = 0.1 and at
ε = 1e-4, 6e-10 at 0.01. Rounding the weights to float32 alone moves σ_j/σ_1 by up to 6e-8. Below `SMALLEST_EPS`
counting is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.errors import OptionError
from rankscope.numerics.lanczos import largest_eigenvalue
from rankscope.numerics.rank import validate_eps
from rankscope.numerics.spectrum import check_matrix, gram, power_of_two
from rankscope.numerics.workspace import Workspace

SMALLEST_EPS = 1e-5
"""Smallest ε that inertia counts; below it WWᵀ has lost the digits that decide."""

_BLOCK = 64
_LARGEST_GROWTH = 1e3


def eps_ranks_by_inertia(m: Float[Tensor, "m n"], eps: Sequence[float]) -> list[int]:
    """ε-ranks of a matrix at every ε, each by one LDLᵀ factorisation of its smaller Gram matrix, on its device.

    Raises:
        OptionError: not a finite matrix, or an ε outside [`SMALLEST_EPS`, 1).

    >>> eps_ranks_by_inertia(torch.diag(torch.tensor([4.0, 2.0, 1.0])), [0.4, 0.2])
    [2, 3]
    """
    levels = [countable_eps(e) for e in eps]
    if m.ndim != 2:
        raise OptionError(f"inertia needs a matrix, not an array of shape {tuple(m.shape)}.")
    check_matrix(m)
    scale = power_of_two(m)
    return gram_eps_ranks(gram(m / scale if scale != 1.0 else m), levels)[0]


def countable_eps(eps: float) -> float:
    """Return ``eps``; raise `OptionError` where it is too small to be counted by inertia."""
    value = validate_eps(eps)
    if value < SMALLEST_EPS:
        raise OptionError(
            f"eps {eps} is too small for counting without singular values (at least {SMALLEST_EPS:g}): "
            "compute all singular values instead, without ranks-only."
        )
    return value


def gram_eps_ranks(
    g: Float[Tensor, "k k"], eps: Sequence[float], workspace: Workspace | None = None
) -> tuple[list[int], float]:
    """ε-ranks of the matrix whose float64 Gram matrix is ``g``, at every ε, and its largest singular value."""
    space = workspace or Workspace()
    top = largest_eigenvalue(g, space)
    if top <= 0.0:
        return [0] * len(eps), 0.0
    counts: dict[float, int] = {}
    for level in sorted(set(eps), reverse=True):
        # ε-ranks only grow as ε shrinks: once all are counted, all smaller ε are too
        full = any(count == g.shape[0] for count in counts.values())
        counts[level] = g.shape[0] if full else positive_eigenvalues(g, level * level * top, space)
    return [counts[level] for level in eps], math.sqrt(top)


def positive_eigenvalues(g: Float[Tensor, "k k"], shift: float, workspace: Workspace | None = None) -> int:
    """Number of eigenvalues of a symmetric float64 matrix above ``shift``."""
    counted = _by_blocks(g, shift, workspace or Workspace())
    if counted is not None:
        return counted
    shifted = g.clone()
    shifted.diagonal().sub_(shift)
    factors, pivots, _ = torch.linalg.ldl_factor_ex(shifted)
    return _positive_pivots(factors.diagonal(), pivots)


def _by_blocks(g: Tensor, shift: float, space: Workspace) -> int | None:
    """Count by block LDLᵀ: pivoting inside diagonal blocks only, so that nearly all work is matrix products.

    Inertia adds up over a block and its Schur complement (Haynsworth). Without pivoting between blocks the
    Schur complements may grow, and rounding with them: None is returned where they did, and the caller pivots.
    Block rows on and right of the diagonal are overwritten: their entries are neighbours in memory.
    """
    size = g.shape[0]
    a = space.take("shifted", (size, size), g.device).copy_(g)
    a.diagonal().sub_(shift)
    solved = space.take("solved", (size, size), g.device)
    positive = 0
    for start in range(0, size, _BLOCK):
        end = min(start + _BLOCK, size)
        strip = a[start:end, start:]
        if start:
            strip.addmm_(a[:start, start:end].mT, solved[:start, start:], alpha=-1)
        count, inverse = _block_inertia(strip[:, : end - start], end < size)
        positive += count
        if inverse is not None:
            torch.mm(inverse, strip[:, end - start :], out=solved[start:end, end:])
    low, high = a.aminmax()
    # a singular block leaves Inf or NaN in its inverse, hence in what follows: the comparison is then false
    limit = _LARGEST_GROWTH * (float(g.diagonal().amax()) + shift)
    return positive if max(-float(low), float(high)) <= limit and not math.isnan(float(low)) else None


def _block_inertia(block: Tensor, invert: bool) -> tuple[int, Tensor | None]:
    """Positive eigenvalues of a symmetric block, and its inverse where asked for.

    Most blocks are definite, all positive or all negative: Cholesky, which needs no pivoting, tells so and inverts
    at half the cost.
    """
    sign = 1.0 if float(block[0, 0]) > 0 else -1.0
    lower, failed = torch.linalg.cholesky_ex(block if sign > 0 else -block)
    if not int(failed):
        inverse = torch.cholesky_inverse(lower).mul_(sign) if invert else None
        return len(block) if sign > 0 else 0, inverse
    factors, pivots, _ = torch.linalg.ldl_factor_ex(block)
    return _positive_pivots(factors.diagonal(), pivots), torch.linalg.inv_ex(block)[0] if invert else None


def _positive_pivots(diagonal: Tensor, pivots: Tensor) -> int:
    """Positive eigenvalues of D, from its diagonal and LAPACK's pivots (Bunch and Kaufman)."""
    single = pivots > 0
    # a 2×2 pivot is chosen only where its determinant is negative: one eigenvalue of each sign
    pairs = int((~single).sum()) // 2
    return int(((diagonal > 0) & single).sum()) + pairs
