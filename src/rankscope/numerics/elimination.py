"""Backward elimination of the columns of a linear map whose inputs are correlated, with least-squares refits.

A layer computes y = W h, C = E[h hᵀ]. Without input j the best it can do with the others, S, is
W̃ = W C[:, S] C[S, S]⁻¹, and that costs E‖y − ỹ‖² = ‖w_j‖²/[C⁻¹]_jj more, w_j the column that j has by then and C⁻¹ that
of the inputs left (the optimal brain surgeon, Hassibi and Stork 1993, with its Hessian C).
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

BLOCK = 64
"""Eliminations between two updates of C⁻¹: products of thin matrices take less time than as many rank-one updates."""


def elimination_order(
    second: Float[Tensor, "n n"], outputs: Float[Tensor, "d_out n"], block: int = BLOCK
) -> Int[Tensor, " n"]:
    """Inputs in the order of their worth: the last one is eliminated first, each at the least cost at its turn.

    One pass gives all widths, O(n³ + n² d_out) in float64.

    Args:
        second: C, positive definite: regularise it where directions were not shown.
        outputs: W, or G^{1/2} W where G is the norm of the outputs.
        block: eliminations between updates; results agree to rounding.

    >>> elimination_order(torch.eye(3), torch.tensor([[2.0, 3.0, 1.0]])).tolist()
    [1, 0, 2]
    """
    n = len(second)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(second.double()))
    columns, left = outputs.double().clone(), torch.arange(n)
    gone: list[Tensor] = []
    while len(left) > 1:
        taken, inverse, columns = _eliminate(inverse, columns, min(block, len(left) - 1))
        gone.append(left[taken])
        others = torch.ones(len(left), dtype=torch.bool)
        others[taken] = False
        kept = others.nonzero()[:, 0]
        left, columns, inverse = left[kept], columns[:, kept], inverse[kept[:, None], kept]
    return torch.cat([left, *(part.flip(0) for part in reversed(gone))])


def _eliminate(
    inverse: Float[Tensor, "n n"], columns: Float[Tensor, "d_out n"], count: int
) -> tuple[Int[Tensor, " count"], Float[Tensor, "n n"], Float[Tensor, "d_out n"]]:
    """Eliminate ``count`` inputs; return them, and C⁻¹ and W updated in the rows and columns of the others."""
    n, d_out = len(inverse), len(columns)
    steps, refits = inverse.new_zeros(n, count), inverse.new_zeros(n, count)
    dropped = inverse.new_zeros(d_out, count)
    pivots, norms = inverse.diagonal().clone(), columns.square().sum(dim=0)
    taken = torch.zeros(count, dtype=torch.long)
    alive = torch.ones(n, dtype=torch.bool)
    for step in range(count):
        cost = torch.where(alive, norms.clamp(min=0.0) / pivots, torch.inf)
        j = int(cost.argmin())
        row = inverse[j] - steps[:, :step] @ steps[j, :step]
        share = row / row[j]
        column = columns[:, j] - dropped[:, :step] @ refits[j, :step]
        along = column @ columns - refits[:, :step] @ (column @ dropped[:, :step])
        norms += share * (share * column.square().sum() - 2 * along)
        pivots -= row * share
        steps[:, step], refits[:, step], dropped[:, step] = row / row[j].sqrt(), share, column
        taken[step], alive[j] = j, False
    return taken, inverse.addmm_(steps, steps.mT, alpha=-1.0), columns.addmm_(dropped, refits.mT, alpha=-1.0)


def innovations(
    second: Float[Tensor, "n n"], order: Int[Tensor, " n"]
) -> tuple[Float[Tensor, "n n"], Float[Tensor, " n"]]:
    """L and D of C = L D Lᵀ with rows and columns of C in ``order``, L lower triangular with ones on the diagonal.

    h = L r in that order: r_t is what the inputs before t do not tell of input t, and D its mean square. A layer W
    computes Σ_t (W L)_t r_t, whose terms are uncorrelated, so that the refit to the first r inputs is
    (W L)[:, :r] L[:r, :r]⁻¹, and its error the sum of the other terms.
    """
    lower = torch.linalg.cholesky(second.double()[order][:, order])
    scale = lower.diagonal().clone()
    return lower / scale, scale.square()
