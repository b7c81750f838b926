"""Square roots of second moments, which may be singular."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.errors import DataError

NOT_POSITIVE = 1e-6
"""A negative eigenvalue beyond this share of the largest is no rounding error of a sum of squares in float32."""


def symmetric_root(
    moment: Float[Tensor, "d d"], ridge: float = 0.0, tolerance: float = NOT_POSITIVE
) -> tuple[Float[Tensor, "d d"], Float[Tensor, " d"]]:
    """Return S with S Sᵀ = C + ridge·mean(diag C)·I, and the eigenvalues of that sum, descending.

    S = V √Λ from the eigenvectors of C, so that a singular C needs no special case, where a Cholesky factor does not
    exist. Columns of S are ordered as the eigenvalues. Computed in float64.

    Args:
        moment: C, symmetric and positive semidefinite up to rounding.
        ridge: what is added to every eigenvalue, in units of their mean.
        tolerance: largest negative eigenvalue, as a share of the largest, that counts as rounding and becomes zero.

    >>> root, values = symmetric_root(torch.tensor([[2.0, 2.0], [2.0, 2.0]]))
    >>> (root @ root.T).round(decimals=6).tolist(), values.round(decimals=6).tolist()
    ([[2.0, 2.0], [2.0, 2.0]], [4.0, 0.0])

    Raises:
        DataError: the moment is not finite, or has a negative eigenvalue that rounding does not explain.
    """
    c = moment.to(torch.float64)
    if not bool(torch.isfinite(c).all()):
        raise DataError("a second moment holds NaN or Inf: calibrate again, on series that the model can take.")
    values, vectors = torch.linalg.eigh((c + c.mT) / 2)
    if float(values[0]) < -tolerance * max(float(values[-1]), 0.0) or float(values[-1]) < 0.0:
        raise DataError(
            f"a second moment has the negative eigenvalue {float(values[0]):.3g}, which none has: calibrate again."
        )
    values = values.clamp(min=0.0).flip(0) + ridge * float(c.diagonal().mean())
    return vectors.flip(1) * values.sqrt(), values
