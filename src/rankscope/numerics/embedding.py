"""Geometry of embeddings: a line by Chebyshev polynomials (App. H); angles between vectors (Q4, Fig. 3b, 8, 14)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.errors import OptionError


def chebyshev_polynomials(x: Float[Tensor, " points"], rank: int) -> Float[Tensor, "points rank"]:
    """Values of T_1 … T_rank at points of [−1, 1], by T_j(x) = cos(j·arccos x).

    >>> chebyshev_polynomials(torch.tensor([0.5, 1.0], dtype=torch.float64), 2).round(decimals=6).tolist()
    [[0.5, -0.5], [1.0, 1.0]]
    """
    degrees = torch.arange(1, rank + 1, dtype=x.dtype, device=x.device)
    return torch.cos(torch.arccos(x).unsqueeze(-1) * degrees)


def random_frame(d_model: int, rank: int, seed: int) -> Float[Tensor, "rank d_model"]:
    """Orthonormal vectors u_1 … u_rank as rows, float64, drawn uniformly (QR of a Gaussian matrix, signs fixed)."""
    generator = torch.Generator().manual_seed(seed)
    q, r = torch.linalg.qr(torch.randn(d_model, rank, generator=generator, dtype=torch.float64))
    # without the signs of r's diagonal the distribution would depend on how LAPACK chooses them
    return (q * torch.where(r.diagonal() < 0, -1.0, 1.0)).T.contiguous()


def chebyshev_embedding(
    points: Float[Tensor, " points"], d_model: int, rank: int, *, limit: float = 15.0, seed: int = 0
) -> Float[Tensor, "points d_model"]:
    """Embed numbers by X = Σ_{j=1..rank} u_j f_j with f_j(x) = T_j(x/limit) and random orthonormal u_j (App. H).

    The result has algebraic rank ``rank``, and, since the u_j are orthonormal, the singular values of the matrix
    of polynomials. Rows are the embedded points: the transpose of the paper's X.

    Args:
        points: numbers in [−limit, limit], more than ``rank`` distinct ones.
        d_model: width d of the embedding.
        rank: number of polynomials, at most ``d_model``.
        limit: x_max, the largest number that the model's bins hold (15 in Chronos).
        seed: the frame u_1 … u_rank is a function of it.

    Returns:
        float64 matrix (points, d_model).

    Raises:
        OptionError: the rank is below 1 or above ``d_model``, there are too few points, or one is beyond the limit.
    """
    if not 1 <= rank <= d_model:
        raise OptionError(f"rank is {rank}: a Chebyshev embedding into d_model {d_model} has rank 1 to {d_model}.")
    x = points.to(torch.float64)
    if len(x.unique()) <= rank:
        raise OptionError(f"rank {rank} needs more than {rank} distinct points, got {len(x.unique())}: lower the rank.")
    if not bool((x.abs() <= limit).all()):
        raise OptionError(f"points reach {float(x.abs().max()):g}, beyond the limit {limit:g}: raise the limit.")
    return chebyshev_polynomials(x / limit, rank) @ random_frame(d_model, rank, seed)


def angle_matrix(x: Float[Tensor, "items dim"]) -> Float[Tensor, "items items"]:
    """Angles θ_ij = arccos(|x_iᵀx_j| / ‖x_i‖‖x_j‖) in [0, π/2] between all pairs of rows (Q4, App. C).

    Computed in float64, with an exactly zero diagonal. A zero vector has no direction: its row and column
    are NaN.

    >>> angle_matrix(torch.tensor([[1.0, 0.0], [0.0, -2.0]])).tolist()
    [[0.0, 1.5707963267948966], [1.5707963267948966, 0.0]]
    """
    if x.ndim != 2:
        raise OptionError(f"angles need a matrix whose rows are the vectors, not an array of shape {tuple(x.shape)}.")
    wide = x.to(torch.float64)
    # the largest entry is divided out first: squares of tiny or huge entries would leave the range
    wide = wide / wide.abs().amax(-1, keepdim=True) if wide.shape[1] else wide
    unit = wide / torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    cosines = (unit @ unit.T).abs().clamp(max=1.0)
    angles = torch.arccos(cosines)
    diagonal = angles.diagonal()
    diagonal.copy_(torch.where(diagonal.isnan(), diagonal, torch.zeros_like(diagonal)))
    return angles
