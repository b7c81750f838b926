"""Everything that a spectrum report needs of one matrix, from as few decompositions as possible."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rankscope.numerics.factored import FactoredMatrix
from rankscope.numerics.inertia import gram_eps_ranks
from rankscope.numerics.rank import effective_rank, eps_ranks, stable_rank
from rankscope.numerics.spectrum import (
    choose_method,
    gram,
    gram_singular_values,
    per_head_of_widths,
    power_of_two,
    singular_values,
    working_dtype,
)
from rankscope.numerics.workspace import Workspace

Widths = tuple[int, ...]
"""Width of every head of a matrix; empty where it has none."""


@dataclass(frozen=True)
class Plan:
    """What to find and how: tolerances, counting or spectrum, precision, device, and the threads' buffers."""

    eps: tuple[float, ...]
    ranks_only: bool
    dtype: torch.dtype | None
    device: str
    workspace: Workspace


@dataclass(frozen=True)
class Decomposition:
    """What was found of one matrix; ``ranks`` and ``head_ranks`` have one entry per ε."""

    shape: tuple[int, int]
    sigma: np.ndarray | None
    sigma_max: float
    ranks: list[int]
    head_ranks: list[list[int]]
    effective_rank: float | None
    stable_rank: float


def decompose(w: Tensor | FactoredMatrix, widths: Widths, head_axis: int | None, plan: Plan) -> Decomposition:
    """Decompose a weight matrix and, where it has heads of such ``widths``, their slices along ``head_axis``."""
    if isinstance(w, FactoredMatrix):
        return _factored(w, widths, head_axis, plan)
    w = w.to(plan.device)
    work = working_dtype(w.dtype, plan.dtype)
    # where float64 is asked for, every singular value is meant to be good, not only those that decide a rank
    smallest = None if work == torch.float64 else min(plan.eps)
    if not plan.ranks_only and choose_method(tuple(w.shape), smallest, work) == "svd":
        sigma = torch.linalg.svdvals(w.to(work))
        sliced = None
        if widths:
            sliced = torch.linalg.svdvals(per_head_of_widths(w.to(work), widths, head_axis or 0))
        return _from_sigma(_shape(w), sigma, sliced, plan)
    return _by_gram(w, widths, head_axis, work, plan)


def _by_gram(w: Tensor, widths: Widths, head_axis: int | None, work: torch.dtype, plan: Plan) -> Decomposition:
    scale = power_of_two(w)
    scaled = w / scale if scale != 1.0 else w
    side = 0 if w.shape[0] < w.shape[1] else 1
    if w.shape[0] == w.shape[1] and head_axis is not None:
        side = head_axis
    g = gram(scaled, side, plan.workspace)
    sliced = None
    if widths:
        sliced = scale * _head_values(scaled, g if side == head_axis else None, widths, head_axis or 0)
    if not plan.ranks_only:
        return _from_sigma(_shape(w), (scale * gram_singular_values(g)).to(work), sliced, plan)
    ranks, top = gram_eps_ranks(g, plan.eps, plan.workspace)
    energy = float(g.diagonal().sum())
    return Decomposition(
        shape=_shape(w),
        sigma=None,
        sigma_max=scale * top,
        ranks=ranks,
        head_ranks=_head_ranks(sliced, plan),
        effective_rank=None,
        stable_rank=energy / (top * top) if top > 0 else 0.0,
    )


def _head_values(w: Tensor, g: Tensor | None, widths: Widths, head_axis: int) -> Tensor:
    """Singular values of the heads; their Gram matrices are diagonal blocks of the whole one, if it is given."""
    if g is None:
        slices = per_head_of_widths(w, widths, head_axis)
        return singular_values(slices, method="gram", dtype=torch.float64)
    blocks, start, widest = [], 0, max(widths)
    for width in widths:
        block = g[start : start + width, start : start + width]
        blocks.append(torch.nn.functional.pad(block, (0, widest - width, 0, widest - width)))
        start += width
    return gram_singular_values(torch.stack(blocks))


def _factored(w: FactoredMatrix, widths: Widths, head_axis: int | None, plan: Plan) -> Decomposition:
    """The factors leave a matrix of the size of the rank: its singular values cost less than counting."""
    moved = FactoredMatrix(w.up.to(plan.device), w.down.to(plan.device))
    sliced = None
    if widths:
        sliced = moved.per_head_singular_values(widths, head_axis or 0, dtype=plan.dtype)
    return _from_sigma(w.shape, moved.singular_values(dtype=plan.dtype), sliced, plan)


def _from_sigma(shape: tuple[int, int], sigma: Tensor, sliced: Tensor | None, plan: Plan) -> Decomposition:
    return Decomposition(
        shape=shape,
        sigma=None if plan.ranks_only else sigma.cpu().numpy(),
        sigma_max=float(sigma[0]) if len(sigma) else 0.0,
        ranks=eps_ranks(sigma, plan.eps).tolist(),
        head_ranks=_head_ranks(sliced, plan),
        effective_rank=None if plan.ranks_only else float(effective_rank(sigma)),
        stable_rank=float(stable_rank(sigma)),
    )


def _head_ranks(sliced: Tensor | None, plan: Plan) -> list[list[int]]:
    """One list of the heads' ε-ranks per ε."""
    return [] if sliced is None else eps_ranks(sliced, plan.eps).mT.tolist()


def _shape(w: Tensor) -> tuple[int, int]:
    return int(w.shape[0]), int(w.shape[1])
