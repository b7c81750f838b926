"""The largest eigenvalue of a positive semidefinite matrix, by Lanczos."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from scipy.linalg import eigh_tridiagonal
from torch import Tensor

from rankscope.numerics.workspace import Workspace

_RELATIVE_ERROR = 1e-7
_SINGLE_FLOOR = 1e-6
_FIRST_CHECK = 12
_MOST_STEPS = 240
_MOST_RESTARTS = 40
_SEED = 20


def largest_eigenvalue(g: Float[Tensor, "k k"], workspace: Workspace | None = None) -> float:
    """Largest eigenvalue of a positive semidefinite float64 matrix, never above it by more than rounding.

    Below it by a relative 1e-7 at most, mostly by far less; by up to 2e-6 where the two leading eigenvalues agree
    to 4e-5 without being equal, because float32 cannot part their vectors further.

    Lanczos runs in float32, which halves its memory traffic, and without reorthogonalisation: directions are lost
    only once a Ritz value has converged (Paige), and then it stops. What it finds is judged in float64: the
    Rayleigh quotient ρ of its vector, whose error is quadratic in that of the vector, and the residual r, which
    bounds that error by r²/gap. Where this is too much, Lanczos starts again from the vector. The gap is that of
    the Ritz values, an estimate. The start is random with a fixed seed: only one orthogonal to the leading
    eigenvector would fail.

    >>> round(largest_eigenvalue(torch.diag(torch.arange(5.0, dtype=torch.float64))), 8)
    4.0
    """
    size = g.shape[0]
    if size == 0 or float(g.diagonal().amax()) <= 0.0:
        return 0.0
    space = workspace or Workspace()
    single = space.take("single", (size, size), g.device, torch.float32).copy_(g)
    basis = space.take("basis", (min(size, _MOST_STEPS) + 1, size), g.device, torch.float32)
    vector = torch.randn(size, generator=torch.Generator().manual_seed(_SEED)).to(g)
    best = 0.0
    for _ in range(_MOST_RESTARTS):
        vector, gap = _leading_vector(single, vector.to(torch.float32), basis)
        vector = vector.to(torch.float64)
        vector /= torch.linalg.vector_norm(vector)
        image = g @ vector
        quotient = float(vector @ image)
        residual = float(torch.linalg.vector_norm(image - quotient * vector))
        settled = quotient - best <= _RELATIVE_ERROR * quotient
        best = max(best, quotient)
        if settled or _accurate(residual, quotient, gap):
            break
    return best


def _accurate(residual: float, top: float, gap: float) -> bool:
    return residual * residual <= _RELATIVE_ERROR * top * gap or residual <= 2 * _SINGLE_FLOOR * top


def _leading_vector(g: Tensor, start: Tensor, basis: Tensor) -> tuple[Tensor, float]:
    """Ritz vector of the largest Ritz value once its error is small, and the gap to the next Ritz value."""
    torch.div(start, torch.linalg.vector_norm(start), out=basis[0])
    new = torch.empty_like(basis[0])
    alphas: list[Tensor] = []
    betas: list[Tensor] = []
    check = _FIRST_CHECK
    for step in range(1, len(basis)):
        recent = basis[max(0, step - 2) : step]
        torch.mv(g, recent[-1], out=new)
        along = torch.mv(recent, new)
        new.addmv_(recent.mT, along, alpha=-1)
        alphas.append(along[-1])
        betas.append(torch.linalg.vector_norm(new))
        torch.div(new, betas[-1], out=basis[step])
        if step >= check or step == len(basis) - 1:
            check = step + max(8, step // 8)
            weights, gap, converged = _ritz(_numbers(alphas), _numbers(betas))
            if converged or step == len(basis) - 1:
                return torch.from_numpy(weights).to(g) @ basis[: len(weights)], gap
    raise AssertionError("the last step always returns")


def _numbers(scalars: list[Tensor]) -> np.ndarray:
    return torch.stack(scalars).cpu().numpy().astype(np.float64)


def _ritz(alphas: np.ndarray, betas: np.ndarray) -> tuple[np.ndarray, float, bool]:
    """Leading eigenvector of the tridiagonal matrix, the gap below its Ritz value, and whether that has converged."""
    # where a norm vanished the space was exhausted: what was computed after it is noise
    vanished = (betas <= _SINGLE_FLOOR * abs(alphas[0])) | np.isnan(betas)
    exhausted = bool(vanished.any())
    steps = int(vanished.argmax()) + 1 if exhausted else len(alphas)
    if steps == 1:
        return np.ones(1), float(alphas[0]), True
    wanted = (steps - 2, steps - 1)
    values, vectors = eigh_tridiagonal(alphas[:steps], betas[: steps - 1], select="i", select_range=wanted)
    gap = float(values[1] - values[0])
    residual = float(betas[steps - 1] * abs(vectors[-1, 1]))
    return vectors[:, 1], gap, exhausted or _accurate(residual, float(values[1]), gap)
