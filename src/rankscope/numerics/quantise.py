"""Matrices as whole numbers of eight bits, with one scale for every row."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int8
from torch import Tensor

from rankscope.errors import DataError

LARGEST = 127
"""Largest magnitude of a stored number; −128 is left out, so that signs are symmetric."""
SCALE_DTYPE = torch.bfloat16
"""Format of scales. Eight significant bits keep every number·scale exact in float32, also for models that compute in
bfloat16, and are enough: rounding moves 127 steps by less than half a step."""
_LEAST = torch.finfo(torch.float32).tiny


@dataclass(frozen=True)
class Quantised:
    """W ≈ diag(scale) · values, with ``values`` from −127 to 127 and one positive scale per row."""

    values: Int8[Tensor, "d_out d_in"]
    scale: Float[Tensor, " d_out"]

    def dense(self, dtype: torch.dtype = torch.float32) -> Float[Tensor, "d_out d_in"]:
        """The matrix that it stands for, exact in float32 and in float64."""
        return self.values.to(dtype) * self.scale.to(dtype)[:, None]


def quantise(matrix: Float[Tensor, "d_out d_in"], name: str = "matrix") -> Quantised:
    """Round every row to multiples of its own scale, max|w|/127 in bfloat16: |W − W̃|_ij ≤ scale_i/2.

    What is rounded already stays as it is, scales included. A row of zeros gets the least scale that there is.

    >>> q = quantise(torch.tensor([[127.0, -63.4], [0.0, 0.0]]))
    >>> q.values.tolist(), q.dense().tolist()
    ([[127, -63], [0, 0]], [[127.0, -63.0], [0.0, 0.0]])

    Args:
        matrix: what to round; half precision too.
        name: what an error calls it.

    Raises:
        DataError: a row holds NaN, Inf or a number beyond bfloat16; it is named.
    """
    rounded = rounded_rows(matrix)
    wrong = ~(rounded.scale.isfinite() & matrix.isfinite().all(dim=1))
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise DataError(
            f"row {row} of {name} holds NaN, Inf or a number too large for a scale: it cannot be stored in int8."
        )
    return rounded


def rounded_rows(matrix: Float[Tensor, "d_out d_in"]) -> Quantised:
    """`quantise` without a look at what the rows hold: for tensors that have no numbers yet."""
    wide = matrix.detach().to(torch.float64)
    most = wide.abs().amax(dim=1) if matrix.shape[1] else wide.new_zeros(matrix.shape[0])
    scale = (most / LARGEST).clamp(min=_LEAST).to(SCALE_DTYPE)
    return Quantised((wide / scale.to(torch.float64)[:, None]).round().to(torch.int8), scale)
