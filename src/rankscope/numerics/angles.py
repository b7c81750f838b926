"""Angles between embedded tokens and between rows of a weight matrix (Q4, Fig. 3b, 8, 14)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.errors import OptionError


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


def row_angles(
    weight: Float[Tensor, "d_out d_in"], heads: int | None = None
) -> Float[Tensor, "d_out d_out"] | Float[Tensor, "heads d_head d_head"]:
    """Angles between all pairs of rows of a weight matrix (Fig. 14), or within each head's rows."""
    if heads is None:
        return angle_matrix(weight)
    if heads < 1 or weight.shape[0] % heads:
        raise OptionError(f"{weight.shape[0]} rows do not split into {heads} heads.")
    return torch.stack([angle_matrix(block) for block in weight.chunk(heads)])
