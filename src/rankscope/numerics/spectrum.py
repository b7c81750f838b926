"""Singular values, by the cheapest method that cannot change an ε-rank."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.errors import OptionError, unknown_choice

GRAM_SMALLEST_EPS = 1e-6
"""Relative size below which the float64 Gram matrix no longer tells singular values apart."""

METHODS = ("auto", "svd", "gram")
_CHUNK = 4096
_STRIP = 192
_SAFE = (1e-12, 1e12)


def working_dtype(dtype: torch.dtype, wanted: torch.dtype | None = None) -> torch.dtype:
    """The precision a matrix is decomposed in: ``wanted``, else its own, but never below float32.

    Raises:
        OptionError: ``wanted`` is neither float32 nor float64.
    """
    if wanted is not None:
        if wanted not in (torch.float32, torch.float64):
            raise OptionError(f"dtype must be float32 or float64, not {wanted}: no decomposition runs in less.")
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
    # NaN and Inf survive a sum, which is forty times faster than looking at every entry
    if not bool(torch.isfinite(m.sum())) and not bool(torch.isfinite(m).all()):
        raise OptionError(f"the matrix of shape {tuple(m.shape)} contains NaN or Inf: it has no singular values.")


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
    scale = power_of_two(m)
    scaled = m / scale if scale != 1.0 else m
    if m.ndim == 2:
        return (gram_singular_values(gram(scaled)) * scale).to(work)
    wide = scaled.to(torch.float64)
    products = wide @ wide.mT if m.shape[-2] <= m.shape[-1] else wide.mT @ wide
    return (gram_singular_values(products) * scale).to(work)


def gram(
    m: Float[Tensor, "m n"],
    side: int | None = None,
    workspace: Workspace | None = None,
    dtype: torch.dtype = torch.float64,
) -> Float[Tensor, "k k"]:
    """Gram matrix over rows (``side`` 0, M·Mᵀ) or columns (1, Mᵀ·M); the smaller side by default.

    Only rows on and right of the diagonal are multiplied, in strips, then mirrored. The long side is read in chunks, so
    that the copy in ``dtype`` stays small beside a large embedding matrix. With a ``workspace`` the result is one
    of its buffers, overwritten by the thread's next call for the same side.
    """
    if side is None:
        side = 0 if m.shape[0] <= m.shape[1] else 1
    rows = m if side == 0 else m.mT
    size, length = rows.shape
    space = workspace or Workspace()
    total = space.take(f"gram{side}", (size, size), m.device, dtype)
    if length == 0:
        return total.zero_()
    for left in range(0, length, _CHUNK):
        block = rows[:, left : left + _CHUNK]
        # the copy keeps the memory order of the matrix: transposing while widening is slow
        wide = space.take(f"wide{side}", tuple((block if side == 0 else block.mT).shape), m.device, dtype)
        wide = wide.copy_(block if side == 0 else block.mT)
        wide = wide if side == 0 else wide.mT
        for start in range(0, size, _STRIP):
            end = min(start + _STRIP, size)
            total[start:end, start:].addmm_(wide[start:end], wide[start:].mT, beta=float(left > 0))
    for start in range(0, size, _STRIP):
        end = min(start + _STRIP, size)
        total[end:, start:end] = total[start:end, end:].mT
    return total


def gram_singular_values(g: Float[Tensor, "*batch k k"]) -> Float[Tensor, "*batch k"]:
    """Singular values of the matrix whose Gram matrix is ``g``, descending, in float64."""
    return torch.linalg.eigvalsh(g).clamp_min(0.0).sqrt().flip(-1)


def per_head(
    m: Float[Tensor, "d_out d_in"], heads: int, head_axis: int = 0
) -> Float[Tensor, "heads d_head d_in"] | Float[Tensor, "heads d_out d_head"]:
    """Each head's slice of a weight matrix, as a view: rows for Q, K, V, columns for O (Q6).

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


def per_head_of_widths(
    m: Float[Tensor, "d_out d_in"], widths: Sequence[int], head_axis: int = 0
) -> Float[Tensor, "heads d_head d_in"] | Float[Tensor, "heads d_out d_head"]:
    """Each head's slice of a weight matrix whose heads have these widths; narrower ones are filled up with zeros.

    Zero rows or columns add nothing but zeros to the singular values. Equal widths are a view (`per_head`).

    Raises:
        OptionError: the widths do not add up to the axis.

    >>> per_head_of_widths(torch.ones(3, 2), (1, 2)).tolist()
    [[[1.0, 1.0], [0.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]]]
    """
    if m.ndim != 2 or head_axis not in (0, 1) or m.shape[head_axis] != sum(widths):
        raise OptionError(f"axis {head_axis} of shape {tuple(m.shape)} does not split into heads of {list(widths)}.")
    if len(set(widths)) == 1:
        return per_head(m, len(widths), head_axis)
    widest = max(widths)
    parts = (m if head_axis == 0 else m.mT).split(list(widths))
    slices = torch.stack([torch.nn.functional.pad(part, (0, 0, 0, widest - len(part))) for part in parts])
    return slices if head_axis == 0 else slices.mT


def power_of_two(m: Float[Tensor, " ..."]) -> float:
    """Power of two near the largest entry where squares could leave float64's range, else 1; dividing is exact."""
    largest = float(max(-m.amin(), m.amax())) if m.numel() else 0.0
    if largest == 0.0 or _SAFE[0] < largest < _SAFE[1]:
        return 1.0
    return 2.0 ** math.floor(math.log2(largest))


class Workspace(threading.local):
    """Named tensors that a thread keeps between matrices, allocated again only when the shape or device changes.

    Allocators return blocks of several MB to the system at once, and touching them afresh costs page faults
    worth a third of a matrix product of that size.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def take(
        self, name: str, shape: tuple[int, ...], device: torch.device, dtype: torch.dtype = torch.float64
    ) -> Tensor:
        """The buffer called ``name``, with whatever it held before."""
        held = self._buffers.get(name)
        if held is None or held.shape != shape or held.device != device or held.dtype != dtype:
            held = torch.empty(shape, dtype=dtype, device=device)
            self._buffers[name] = held
        return held
