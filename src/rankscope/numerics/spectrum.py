"""Singular values, by the cheapest method that cannot change an ε-rank."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.errors import OptionError, unknown_choice
from rankscope.numerics.parallel import parallel_map

GRAM_SMALLEST_EPS = 1e-6
"""Relative size below which the float64 Gram matrix no longer tells singular values apart."""

METHODS = ("auto", "svd", "gram")
_CHUNK = 4096


def working_dtype(dtype: torch.dtype, wanted: torch.dtype | None = None) -> torch.dtype:
    """The precision a matrix is decomposed in: ``wanted``, else its own, but never below float32.

    Raises:
        OptionError: ``wanted`` is neither float32 nor float64.
    """
    if wanted is not None:
        if wanted not in (torch.float32, torch.float64):
            raise OptionError(
                f"dtype must be float32 or float64, not {wanted}: no decomposition runs in less."
            )
        return wanted
    return torch.float64 if dtype == torch.float64 else torch.float32


def upcast(m: Float[Tensor, " ..."], dtype: torch.dtype | None = None) -> Float[Tensor, " ..."]:
    """``m`` in its working precision: LAPACK has no half precision, and bf16 sums would lose the small σ."""
    return m.to(working_dtype(m.dtype, dtype))


def choose_method(shape: tuple[int, ...], smallest_eps: float | None, dtype: torch.dtype) -> str:
    """Return "gram" where the Gram matrix cannot change an ε-rank down to ``smallest_eps``, else "svd".

    The Gram matrix is always formed in float64, so σ_j carries an absolute error of about u₆₄·σ_1²/σ_j,
    at most √u₆₄·σ_1 ≈ 1e-8·σ_1: no more than float32 ``svdvals`` has for every σ_j (u₃₂ ≈ 6e-8). Hence
    float32 and half matrices take it unless an ε below `GRAM_SMALLEST_EPS` is asked for; float64 ones only
    when the smallest ε is known and not below it. A matrix with a side of one needs neither.

    >>> choose_method((768, 768), 0.01, torch.float32), choose_method((768, 768), None, torch.float64)
    ('gram', 'svd')
    """
    if min(shape[-2:]) <= 1:
        return "svd"
    if smallest_eps is None:
        return "svd" if dtype == torch.float64 else "gram"
    return "gram" if smallest_eps >= GRAM_SMALLEST_EPS else "svd"


def check_matrix(m: Float[Tensor, " ..."]) -> None:
    """Raise `OptionError` unless ``m`` is at least two-dimensional and finite."""
    if m.ndim < 2:
        raise OptionError(f"singular values need a matrix, not an array of shape {tuple(m.shape)}.")
    if not bool(torch.isfinite(m).all()):
        raise OptionError(
            f"the matrix of shape {tuple(m.shape)} contains NaN or Inf: it has no singular values."
        )


def singular_values(
    m: Float[Tensor, "*batch m n"],
    *,
    method: str = "auto",
    dtype: torch.dtype | None = None,
    smallest_eps: float | None = None,
) -> Float[Tensor, "*batch k"]:
    """Singular values in descending order, k = min(m, n), on the device of ``m``.

    Half precision is upcast to float32; ``dtype=torch.float64`` computes and returns float64. ``method`` is
    "svd" (LAPACK gesdd, values only), "gram" (eigenvalues of the float64 Gram matrix of the smaller side) or
    "auto" (`choose_method`).

    Raises:
        OptionError: not a matrix, not finite, an unknown method or dtype.

    >>> singular_values(torch.tensor([[3.0, 0.0], [0.0, -4.0], [0.0, 0.0]])).tolist()
    [4.0, 3.0]
    """
    if method not in METHODS:
        raise OptionError(unknown_choice("method", method, METHODS))
    check_matrix(m)
    work = working_dtype(m.dtype, dtype)
    if m.numel() == 0:
        return torch.zeros((*m.shape[:-2], min(m.shape[-2:])), dtype=work, device=m.device)
    chosen = choose_method(tuple(m.shape), smallest_eps, work) if method == "auto" else method
    if chosen == "svd":
        return torch.linalg.svdvals(m.to(work))
    scale = _scale(m)
    values = gram_singular_values(gram(m / scale if scale != 1.0 else m))
    return (values * scale).to(work)


def gram(m: Float[Tensor, "*batch m n"], side: int | None = None) -> Float[Tensor, "*batch k k"]:
    """Float64 Gram matrix over rows (``side`` 0, M·Mᵀ) or columns (1, Mᵀ·M); the smaller side by default.

    The long side is read in chunks, so that the float64 copy stays small beside a large embedding matrix.
    """
    if side is None:
        side = 0 if m.shape[-2] <= m.shape[-1] else 1
    rows = m if side == 0 else m.mT
    total: Tensor | None = None
    for block in rows.split(_CHUNK, dim=-1):
        wide = block.to(torch.float64)
        total = wide @ wide.mT if total is None else total.add_(wide @ wide.mT)
    if total is None:
        return torch.zeros((*rows.shape[:-1], rows.shape[-2]), dtype=torch.float64, device=m.device)
    return total


def gram_singular_values(g: Float[Tensor, "*batch k k"]) -> Float[Tensor, "*batch k"]:
    """Singular values of the matrix whose Gram matrix is ``g``, descending, in float64."""
    return torch.linalg.eigvalsh(g).clamp_min(0.0).sqrt().flip(-1)


def per_head(
    m: Float[Tensor, "d_out d_in"], heads: int, head_axis: int = 0
) -> Float[Tensor, "heads d_head d_in"] | Float[Tensor, "heads d_out d_head"]:
    """Each head's slice of a weight matrix, as a view: rows for Q, K, V (axis 0), columns for O (axis 1) (Q6).

    Raises:
        OptionError: the axis does not split into ``heads`` equal parts.

    >>> per_head(torch.zeros(6, 4), 3).shape, per_head(torch.zeros(4, 6), 3, head_axis=1).shape
    (torch.Size([3, 2, 4]), torch.Size([3, 4, 2]))
    """
    if m.ndim != 2 or head_axis not in (0, 1) or heads < 1 or m.shape[head_axis] % heads:
        raise OptionError(f"axis {head_axis} of shape {tuple(m.shape)} does not split into {heads} heads.")
    width = m.shape[head_axis] // heads
    if head_axis == 0:
        return m.reshape(heads, width, m.shape[1])
    return m.reshape(m.shape[0], heads, width).transpose(0, 1)


def spectra(
    matrices: Iterable[Float[Tensor, "_ _"]],
    *,
    method: str = "auto",
    dtype: torch.dtype | None = None,
    smallest_eps: float | None = None,
    workers: int | None = None,
) -> Iterator[Float[Tensor, " _"]]:
    """Singular values of each matrix, in order, computed in parallel with one LAPACK thread per matrix.

    The iterable is read lazily, a few matrices ahead, so a generator that loads them keeps memory flat.
    """

    def values(m: Tensor) -> Tensor:
        return singular_values(m, method=method, dtype=dtype, smallest_eps=smallest_eps)

    return parallel_map(values, matrices, workers)


def _scale(m: Tensor) -> float:
    """Power of two near the largest entry of a float64 matrix, whose squares could leave float64's range."""
    if m.dtype != torch.float64:
        return 1.0
    largest = float(m.abs().amax())
    return 2.0 ** math.floor(math.log2(largest)) if largest > 0 else 1.0
