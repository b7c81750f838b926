"""Geometry of channel directions and positions: cosines, norms, variance fractions, overlap."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.errors import DataError
from rankscope.numerics.rank import effective_rank
from rankscope_lab.blocks.embeddings import sinusoid

LEADING = 8
"""Singular values of the positions that are kept."""


@dataclass(frozen=True)
class Gram:
    """Cosines between the channels' directions: 0 where they are orthogonal.

    Attributes:
        mean: of |cos| over all pairs of channels.
        max: the largest.
    """

    mean: float
    max: float


def gram_cosines(rows: Float[Tensor, "channels d_model"]) -> Gram:
    """|cos| between the rows of ``rows``, all pairs. Source: Lehtinen 2026, section 2.5.

    Raises:
        DataError: fewer than two rows: there is no pair.

    >>> gram_cosines(torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]])).max
    0.7071067811865475
    """
    if len(rows) < 2:
        raise DataError(f"cosines need at least two channels, got {len(rows)}.")
    cosines = _cosines(rows)
    return Gram(float(cosines.mean()), float(cosines.max()))


def _cosines(rows: Float[Tensor, "*draws channels d_model"]) -> Float[Tensor, "*draws pairs"]:
    """|cos| of every pair, once."""
    unit = nn.functional.normalize(rows.double(), dim=-1)
    first, second = torch.triu_indices(rows.shape[-2], rows.shape[-2], offset=1)
    return (unit @ unit.mT)[..., first, second].abs()


@lru_cache(maxsize=8)
def chance_cosines(channels: int, d_model: int) -> Gram:
    """Mean of `gram_cosines` over independent Gaussian rows.

    The mean is that of |cos| to any fixed direction, Γ(d/2) / (√π Γ((d+1)/2)); the largest of all pairs is simulated.
    """
    mean = math.exp(math.lgamma(d_model / 2) - math.lgamma((d_model + 1) / 2)) / math.sqrt(math.pi)
    rows = torch.randn(2000, channels, d_model, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return Gram(mean, float(_cosines(rows).amax(-1).mean()))


def variance_shares(
    rows: Float[Tensor, "channels d_model"], inputs: Float[Tensor, "series time channels"]
) -> Float[Tensor, " channels"]:
    """Share of each channel in the variance of the encoder's output: Σ_d Var[W_kd v_k(t)] over its sum.

    A bias does not vary, so a channel contributes |W_k|² Var[v_k] (unbiased, over series and time).
    Source: Lehtinen 2026, section 2.5.
    """
    variance = rows.double().square().sum(-1) * inputs.double().flatten(0, 1).var(0).to(rows.device)
    return variance / variance.sum()


@dataclass(frozen=True)
class PositionGeometry:
    """Size and place of the positions P in the stream.

    Attributes:
        energy: ‖P‖_F².
        effective_rank: of P, not centred.
        overlap: share of ‖P‖_F² inside the span of the channels' directions.
        sigma: leading singular values, descending.
    """

    energy: float
    effective_rank: float
    overlap: float
    sigma: list[float]


def position_geometry(
    positions: Float[Tensor, "time d_model"], rows: Float[Tensor, "channels d_model"]
) -> PositionGeometry:
    """Measure positions P beside the channels' directions W: ‖P Q‖_F² / ‖P‖_F², Q an orthonormal basis of W's rows.

    Source: Lehtinen 2026, section 3.10. For a random space of C dimensions the overlap is C / d_model on average.
    """
    p, w = positions.double(), rows.double()
    sigma = torch.linalg.svdvals(p)
    _, strength, basis = torch.linalg.svd(w, full_matrices=False)
    spanned = basis[strength > strength.amax() * max(w.shape) * torch.finfo(w.dtype).eps]
    energy = p.square().sum()
    overlap = (p @ spanned.T).square().sum() / energy
    return PositionGeometry(float(energy), float(effective_rank(sigma)), float(overlap), sigma[:LEADING].tolist())


@lru_cache(maxsize=2)
def untrained_positions(channels: int, d_model: int, length: int) -> PositionGeometry:
    """Average geometry of a projected position before training: default linear layer on p(t), W of Gaussian rows.

    The layer draws weights and biases from U(±1/√d_model), of variance 1 / (3 d_model), so that ‖P‖_F² is on average
    a third of ‖p‖_F² and of the number of steps; the rest is simulated.
    """
    generator, draws = torch.Generator().manual_seed(0), 256
    bound = d_model**-0.5
    table = sinusoid(length, d_model)
    measured = []
    for _ in range(draws):
        weight = torch.empty(d_model, d_model).uniform_(-bound, bound, generator=generator)
        bias = torch.empty(d_model).uniform_(-bound, bound, generator=generator)
        rows = torch.randn(channels, d_model, generator=generator)
        measured.append(position_geometry(table @ weight.T + bias, rows))
    return PositionGeometry(
        (float(table.double().square().sum()) + length) / 3,
        sum(one.effective_rank for one in measured) / draws,
        sum(one.overlap for one in measured) / draws,
        torch.tensor([one.sigma for one in measured], dtype=torch.float64).mean(0).tolist(),
    )
