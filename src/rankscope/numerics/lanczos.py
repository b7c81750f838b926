"""The largest eigenvalue of a positive semidefinite matrix, by Lanczos."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

_RELATIVE_ERROR = 1e-7
_SINGLE_FLOOR = 1e-6
_FIRST_CHECK = 20
_MOST_STEPS = 500
_SEED = 20


def largest_eigenvalue(g: Float[Tensor, "k k"]) -> float:
    """Largest eigenvalue of a positive semidefinite float64 matrix, to a relative 1e-7 or (mostly) far better.

    Lanczos with full reorthogonalisation runs in float32, which halves its memory traffic; the Rayleigh
    quotient of its vector is taken in float64. Its error is quadratic in that of the vector, so nothing is lost.
    The start is random with a fixed seed: only a start orthogonal to the leading eigenvector would fail.

    >>> round(largest_eigenvalue(torch.diag(torch.arange(5.0, dtype=torch.float64))), 8)
    4.0
    """
    size = g.shape[0]
    if size == 0 or float(g.diagonal().amax()) <= 0.0:
        return 0.0
    vector = _leading_vector(g.to(torch.float32)).to(torch.float64)
    vector /= torch.linalg.vector_norm(vector)
    return float(vector @ (g @ vector))


def _leading_vector(g: Tensor) -> Tensor:
    """Unit Ritz vector of the largest Ritz value once its error is small; row j of ``basis`` spans step j."""
    size = g.shape[0]
    basis = torch.empty((min(size, _MOST_STEPS) + 1, size), dtype=g.dtype, device=g.device)
    basis[0] = torch.randn(size, generator=torch.Generator().manual_seed(_SEED)).to(g)
    basis[0] /= torch.linalg.vector_norm(basis[0])
    new = torch.empty_like(basis[0])
    alphas: list[Tensor] = []
    betas: list[Tensor] = []
    check = _FIRST_CHECK
    for step in range(1, len(basis)):
        known = basis[:step]
        torch.mv(g, known[-1], out=new)
        along = torch.mv(known, new)
        new.addmv_(known.mT, along, alpha=-1)
        # once is not enough in float32: the error left grows by ‖g‖/β at every step
        new.addmv_(known.mT, torch.mv(known, new), alpha=-1)
        alphas.append(along[-1])
        betas.append(torch.linalg.vector_norm(new))
        torch.div(new, betas[-1], out=basis[step])
        if step >= check or step == len(basis) - 1:
            check = step + max(4, step // 3)
            weights, converged = _ritz(torch.stack(alphas).cpu(), torch.stack(betas).cpu())
            if converged or step == len(basis) - 1:
                return weights.to(g) @ basis[: len(weights)]
    raise AssertionError("the last step always returns")


def _ritz(alphas: Tensor, betas: Tensor) -> tuple[Tensor, bool]:
    """Leading eigenvector of the tridiagonal matrix, and whether its Ritz value is accurate enough."""
    # where a norm vanished the space was exhausted: what was computed after it is noise
    vanished = (betas <= _SINGLE_FLOOR * alphas[0].abs()) | betas.isnan()
    exhausted = bool(vanished.any())
    steps = int(vanished.to(torch.int64).argmax()) + 1 if exhausted else len(alphas)
    wide, off = alphas[:steps].to(torch.float64), betas[: steps - 1].to(torch.float64)
    values, vectors = torch.linalg.eigh(torch.diag(wide) + torch.diag(off, 1) + torch.diag(off, -1))
    top = float(values[-1])
    gap = top - float(values[-2]) if steps > 1 else top
    residual = float(betas[steps - 1]) * abs(float(vectors[-1, -1]))
    accurate = residual * residual <= _RELATIVE_ERROR * top * gap or residual <= _SINGLE_FLOOR * top
    return vectors[:, -1], exhausted or accurate
