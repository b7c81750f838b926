"""ε-rank, effective and stable rank of a spectrum, flow of ranks, size at a rank: each definition lives here only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankscope.errors import OptionError

Shape = tuple[int, int]


def validate_eps(eps: float) -> float:
    """Return ``eps`` as a float in [0, 1).

    Raises:
        OptionError: outside [0, 1) or not a number.
    """
    try:
        value = float(eps)
    except (TypeError, ValueError):
        raise OptionError(f"eps must be a number in [0, 1), not {eps!r}; try 0.05.") from None
    if not 0.0 <= value < 1.0:
        raise OptionError(
            f"eps must lie in [0, 1), not {eps}: it is a fraction of the largest singular value; try 0.05."
        )
    return value


def validate_levels(eps: float | Iterable[float]) -> tuple[float, ...]:
    """Return one or more different ε, each in [0, 1), in the order given.

    >>> validate_levels(0.1), validate_levels([0.1, 0.01, 0.1])
    ((0.1,), (0.1, 0.01))

    Raises:
        OptionError: there is none, or one is outside [0, 1) or not a number.
    """
    alone = isinstance(eps, str) or not isinstance(eps, Iterable) or getattr(eps, "ndim", 1) == 0
    given = [cast(float, eps)] if alone else cast(Iterable[float], eps)
    levels = tuple(dict.fromkeys(map(validate_eps, given)))
    if not levels:
        raise OptionError("eps needs at least one tolerance in [0, 1); try 0.05.")
    return levels


def relative_spectrum(sigma: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch k"]:
    """Singular values over the largest one, σ_j/σ_1 (Q1); all zeros for the zero matrix, NaN where one is NaN.

    >>> relative_spectrum(torch.tensor([4.0, 2.0, 1.0])).tolist()
    [1.0, 0.5, 0.25]
    """
    if sigma.shape[-1] == 0:
        return sigma
    top = sigma.amax(-1, keepdim=True)
    return torch.where(top == 0, torch.zeros_like(sigma), sigma / top)


def eps_ranks(sigma: Float[Tensor, "*batch k"], eps: Sequence[float]) -> Int[Tensor, "*batch eps"]:
    """Number of singular values strictly above ε·σ_1, for many ε at once (eq. 1).

    The order of ``sigma`` does not matter. The comparison runs in float64, as σ > ε·σ_1 rather than as a
    quotient, so that the zero matrix has rank 0 at every ε.

    Raises:
        OptionError: an ε outside [0, 1), or a singular value that is NaN or infinite.

    >>> eps_ranks(torch.tensor([4.0, 2.0, 1.0]), [0.5, 0.1, 0.0]).tolist()
    [1, 3, 3]
    """
    levels = torch.tensor([validate_eps(e) for e in eps], dtype=torch.float64, device=sigma.device)
    if sigma.shape[-1] == 0:
        return torch.zeros((*sigma.shape[:-1], len(levels)), dtype=torch.int64, device=sigma.device)
    wide = sigma.to(torch.float64)
    top = wide.amax(-1, keepdim=True)
    if not torch.isfinite(top).all():
        raise OptionError("a singular value is NaN or infinite: such a spectrum has no rank.")
    thresholds = top * levels
    return (wide.unsqueeze(-1) > thresholds.unsqueeze(-2)).sum(-2)


def eps_rank(sigma: Float[Tensor, "*batch k"], eps: float) -> Int[Tensor, "*batch"]:
    """Number of singular values strictly above ε·σ_1 (eq. 1); 0 for the zero matrix.

    Raises:
        OptionError: ε outside [0, 1), or a singular value that is NaN or infinite.

    >>> int(eps_rank(torch.tensor([4.0, 2.0, 1.0]), 0.3))
    2
    """
    return eps_ranks(sigma, [eps])[..., 0]


def effective_rank(sigma: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
    """Exponential of the entropy of p_j = σ_j²/Σσ²; k when all values are equal, 1 at rank one, 0 for zero, or NaN.

    >>> round(float(effective_rank(torch.ones(5))), 6)
    5.0
    """
    relative = relative_spectrum(sigma.to(torch.float64))
    energy = relative.square()
    share = energy / energy.sum(-1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    entropy = -torch.special.xlogy(share, share).sum(-1)
    return torch.where(energy.sum(-1) == 0, torch.zeros_like(entropy), entropy.exp())


def stable_rank(sigma: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
    """Σσ_j²/σ_1², the squared Frobenius norm over the squared spectral norm; 0 for the zero matrix.

    >>> float(stable_rank(torch.tensor([2.0, 1.0])))
    1.25
    """
    return relative_spectrum(sigma.to(torch.float64)).square().sum(-1)


def factoring_pays(shape: Shape, rank: int) -> bool:
    """True if a rank-``rank`` factorisation of an m×n matrix stores fewer numbers: r(m+n) < mn.

    >>> factoring_pays((768, 768), 383), factoring_pays((768, 768), 384)
    (True, False)
    """
    rows, columns = shape
    return rank * (rows + columns) < rows * columns


def factored_parameters(shape: Shape, rank: int) -> int:
    """Numbers stored at rank ``rank``: r(m+n) where that is fewer than mn, else the dense mn.

    >>> factored_parameters((768, 768), 10), factored_parameters((768, 768), 700)
    (15360, 589824)
    """
    rows, columns = shape
    if rank < 0:
        raise OptionError(f"rank must be at least 0, not {rank}.")
    return rank * (rows + columns) if factoring_pays(shape, rank) else rows * columns


def size_ratio(shapes: Iterable[Shape], ranks: Iterable[int]) -> float:
    """Σ stored parameters after over before, of matrices of ``shapes`` kept at ``ranks`` (Q7); 1 for none.

    >>> size_ratio([(768, 768), (768, 768)], [96, 700])
    0.625
    """
    pairs = list(zip(shapes, ranks, strict=True))
    before = sum(rows * columns for (rows, columns), _ in pairs)
    after = sum(factored_parameters(shape, rank) for shape, rank in pairs)
    return after / before if before else 1.0
