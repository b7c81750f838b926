"""How a matrix becomes two thin ones."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.errors import OptionError
from rankscope.numerics import FactoredMatrix
from rankscope.numerics.spectrum import upcast


def truncated_svd(
    matrix: Float[Tensor, "d_out d_in"] | FactoredMatrix, rank: int, dtype: torch.dtype | None = None
) -> FactoredMatrix:
    """Best approximation of ``rank``, as balanced factors up = U√Σ and down = √Σ Vᵀ.

    By Eckart and Young no matrix of that rank is closer: the error is σ_{rank+1} in the spectral norm and
    √(Σ_{j>rank} σ_j²) in the Frobenius norm. Half precision is decomposed in float32, because LAPACK has no
    half precision, and the factors are cast to ``dtype`` (the matrix's own by default) once, at the end.
    Balanced factors have equal norms, so neither leaves the range of float16. A `FactoredMatrix` is decomposed
    through QR of its factors and never multiplied out.

    >>> f = truncated_svd(torch.diag(torch.tensor([4.0, 1.0])), 1)
    >>> f.dense().abs().round(decimals=4).tolist()
    [[4.0, 0.0], [0.0, 0.0]]

    Raises:
        OptionError: the rank is outside 1…min(d_out, d_in).
    """
    rows, columns = matrix.shape
    if not 1 <= rank <= min(rows, columns):
        raise OptionError(f"rank {rank} is outside 1…{min(rows, columns)} for a {rows}×{columns} matrix.")
    if isinstance(matrix, FactoredMatrix):
        stored = matrix.up.dtype
        left, s, right = _factored_svd(matrix)
    else:
        stored = matrix.dtype
        left, s, right = torch.linalg.svd(upcast(matrix), full_matrices=False)
    root = s[:rank].sqrt()
    kind = stored if dtype is None else dtype
    return FactoredMatrix(
        up=(left[:, :rank] * root).to(kind).contiguous(),
        down=(root[:, None] * right[:rank]).to(kind).contiguous(),
    )


def _factored_svd(matrix: FactoredMatrix) -> tuple[Tensor, Tensor, Tensor]:
    q_up, r_up = torch.linalg.qr(upcast(matrix.up))
    q_down, r_down = torch.linalg.qr(upcast(matrix.down).mT)
    u, s, vh = torch.linalg.svd(r_up @ r_down.mT, full_matrices=False)
    return q_up @ u, s, vh @ q_down.mT
