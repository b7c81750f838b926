"""Matrices as products: two thin factors, whose spectrum needs no product; second moments as squares of a root."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.errors import DataError, OptionError
from rankscope.numerics.spectrum import per_head_of_widths, singular_values, upcast

NOT_POSITIVE = 1e-6
"""A negative eigenvalue beyond this share of the largest is not a rounding error of a sum of squares in float32."""


@dataclass(frozen=True)
class FactoredMatrix:
    """W = up · down, with ``up`` of shape (d_out, rank) and ``down`` of shape (rank, d_in) (eq. 20).

    >>> w = FactoredMatrix(torch.eye(3, 1), 2 * torch.eye(1, 4))
    >>> w.shape, w.rank, w.singular_values().tolist()
    ((3, 4), 1, [2.0])
    """

    up: Float[Tensor, "d_out rank"]
    down: Float[Tensor, "rank d_in"]

    def __post_init__(self) -> None:
        """Refuse factors whose inner sizes differ."""
        if self.up.ndim != 2 or self.down.ndim != 2 or self.up.shape[1] != self.down.shape[0]:
            raise OptionError(
                f"up {tuple(self.up.shape)} and down {tuple(self.down.shape)} do not multiply: "
                "expected (d_out, rank) and (rank, d_in)."
            )

    @property
    def shape(self) -> tuple[int, int]:
        """(d_out, d_in) of the product."""
        return int(self.up.shape[0]), int(self.down.shape[1])

    @property
    def rank(self) -> int:
        """Inner size of the factors: an upper bound of the algebraic rank."""
        return int(self.up.shape[1])

    @property
    def parameters(self) -> int:
        """Numbers stored in the two factors."""
        return self.up.numel() + self.down.numel()

    def dense(self) -> Float[Tensor, "d_out d_in"]:
        """The product, computed in at least float32 and cast back once."""
        return (upcast(self.up) @ upcast(self.down)).to(self.up.dtype)

    def singular_values(self, dtype: torch.dtype | None = None) -> Float[Tensor, " k"]:
        """The k = min(rank, d_out, d_in) leading singular values, descending; all others are exactly zero.

        Two QR factorisations of the thin factors leave a k×k matrix with the same singular values.
        """
        return singular_values(_right(self.up, dtype) @ _right(self.down.mT, dtype).mT, dtype=dtype)

    def per_head_singular_values(
        self, widths: Sequence[int], head_axis: int, dtype: torch.dtype | None = None
    ) -> Float[Tensor, "heads k"]:
        """Leading singular values of each head's slice along an axis (0 rows, 1 columns), descending.

        Raises:
            OptionError: the widths of the heads do not add up to the axis.
        """
        split, shared = (self.up, self.down.mT) if head_axis == 0 else (self.down.mT, self.up)
        if head_axis not in (0, 1) or split.shape[0] != sum(widths):
            raise OptionError(f"axis {head_axis} of shape {self.shape} does not split into heads of {list(widths)}.")
        slices = per_head_of_widths(upcast(split, dtype), widths)
        return singular_values(slices @ _right(shared, dtype).mT, dtype=dtype)


def joined_heads(
    up: Float[Tensor, "d_up r_up"], down: Float[Tensor, "r_down d_down"], heads: int, axis: int
) -> FactoredMatrix:
    """Factors of every head as factors of the whole matrix (eq. 21): one is block-diagonal, the other as it is.

    Along axis 0 head i is rows of W, W⁽ⁱ⁾ = W₁⁽ⁱ⁾ W₂⁽ⁱ⁾: ``up`` holds the W₁⁽ⁱ⁾ below each other, and so does ``down``
    the W₂⁽ⁱ⁾. Along axis 1 head i is columns of W: ``up`` holds the W₁⁽ⁱ⁾ side by side.

    >>> joined_heads(torch.ones(4, 1), torch.ones(2, 3), heads=2, axis=0).up
    tensor([[1., 0.],
            [1., 0.],
            [0., 1.],
            [0., 1.]])
    """
    split = up if axis == 0 else down
    blocks = torch.block_diag(*split.reshape(heads, -1, split.shape[1]))
    return FactoredMatrix(blocks, down) if axis == 0 else FactoredMatrix(up, blocks)


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


def _right(factor: Tensor, dtype: torch.dtype | None) -> Tensor:
    return torch.linalg.qr(upcast(factor, dtype), mode="r").R
