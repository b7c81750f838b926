"""Which site is kept at which rank: from spectra and an ε, or from spectra and a size ratio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.errors import OptionError
from rankscope.numerics import eps_rank, factored_parameters, factoring_pays, relative_spectrum, validate_eps


@dataclass(frozen=True)
class Spectrum:
    """Singular values of one site, with what is stored of it now.

    Attributes:
        name: tensor name of the dense weight.
        shape: (d_out, d_in).
        sigma: descending singular values; values that are left out are zero.
        stored_rank: inner size of the stored factors, None for a dense matrix.
        stored_factors: numbers in the stored factors, where those are not r(m+n): heads with sketches of their own.
    """

    name: str
    shape: tuple[int, int]
    sigma: Float[Tensor, " k"]
    stored_rank: int | None = None
    stored_factors: int | None = None

    @property
    def stored(self) -> int:
        """Numbers stored now: mn dense, r(m+n) factored."""
        if self.stored_rank is None:
            return self.shape[0] * self.shape[1]
        return self.stored_rank * sum(self.shape) if self.stored_factors is None else self.stored_factors


@dataclass(frozen=True)
class SitePlan:
    """What becomes of one site.

    Attributes:
        name: tensor name of the dense weight.
        shape: (d_out, d_in).
        layout: how it will be stored.
        rank: inner size of the factors, min(d_out, d_in) for a dense matrix.
        eps_rank: its ε-rank at the plan's ε; 0 for the zero matrix, which is stored with rank 1.
        changed: False where the stored tensors are kept bit for bit.
        before: numbers stored now.
        after: numbers stored then.
        sigma_max: σ_1.
        error: σ_{rank+1}, the spectral norm of what is cut off; 0 where nothing is.
    """

    name: str
    shape: tuple[int, int]
    layout: Literal["dense", "factored"]
    rank: int
    eps_rank: int
    changed: bool
    before: int
    after: int
    sigma_max: float
    error: float

    @property
    def module(self) -> str:
        """Name of the module that holds the weight."""
        return self.name.removesuffix(".weight")


@dataclass(frozen=True)
class Plan:
    """A layout and a rank for every selected site, all at one ε.

    Attributes:
        eps: the shared tolerance, relative to each matrix's σ_1.
        target: the size ratio that was asked for, None when ε was.
        sites: one entry per selected site.
    """

    eps: float
    target: float | None
    sites: tuple[SitePlan, ...]

    @property
    def before(self) -> int:
        """Numbers that the selected sites store now."""
        return sum(site.before for site in self.sites)

    @property
    def after(self) -> int:
        """Numbers that they will store."""
        return sum(site.after for site in self.sites)

    @property
    def ratio(self) -> float:
        """Size ratio over the selected sites, after/before (Q7); 1 for none."""
        return self.after / self.before if self.before else 1.0


def plan_by_eps(spectra: Sequence[Spectrum], eps: float) -> Plan:
    """Keep of every site its ε-rank, stored as factors where those are fewer numbers: r(m+n) < mn (Q7).

    A zero matrix, whose ε-rank is 0, keeps rank 1 with zero factors. Factored sites are cut further but never
    made dense again.

    >>> plan = plan_by_eps([Spectrum("q.weight", (4, 4), torch.tensor([1.0, 0.5, 0.01, 0.0]))], 0.6)
    >>> plan.sites[0].layout, plan.sites[0].rank, plan.ratio, plan.sites[0].error
    ('factored', 1, 0.5, 0.5)

    Raises:
        OptionError: ε outside [0, 1).
    """
    eps = validate_eps(eps)
    return Plan(eps, None, tuple(_site_plan(spectrum, eps) for spectrum in spectra))


def plan_by_ratio(spectra: Sequence[Spectrum], ratio: float) -> Plan:
    """Find the smallest shared ε whose size ratio is not above ``ratio``, by bisection over all σ_j/σ_1.

    The ratio is a falling step function of ε that jumps only at relative singular values, so the search over
    those is exact: no other ε gives a ratio that is closer without exceeding the target. At ratio 1 everything
    is kept as it is.

    Raises:
        OptionError: the ratio is outside (0, 1], or smaller than rank 1 everywhere gives (it names the least).
    """
    ratio = validate_ratio(ratio)
    if ratio == 1.0:
        return Plan(0.0, ratio, tuple(_kept(spectrum, 0.0) for spectrum in spectra))
    steps = _steps(spectra)
    low, high = 0, len(steps) - 1
    least = plan_by_eps(spectra, steps[high]).ratio
    if least > ratio:
        raise OptionError(
            f"ratio {ratio:g} is out of reach: rank 1 everywhere already gives {least:.4g} on the selected sites; "
            "ask for at least that, or select larger sites."
        )
    while low < high:
        middle = (low + high) // 2
        if plan_by_eps(spectra, steps[middle]).ratio <= ratio:
            high = middle
        else:
            low = middle + 1
    plan = plan_by_eps(spectra, steps[high])
    return Plan(plan.eps, ratio, plan.sites)


def validate_ratio(ratio: float) -> float:
    """Return ``ratio`` as a float in (0, 1].

    Raises:
        OptionError: outside, or not a number.
    """
    try:
        value = float(ratio)
    except (TypeError, ValueError):
        raise OptionError(f"ratio must be a number in (0, 1], not {ratio!r}; try 0.4.") from None
    if not 0.0 < value <= 1.0:
        raise OptionError(f"ratio must lie in (0, 1], not {ratio}: it is stored size after over before; try 0.4.")
    return value


def _steps(spectra: Sequence[Spectrum]) -> list[float]:
    """All ε at which some rank drops, ascending, with 0 first."""
    relative = [relative_spectrum(spectrum.sigma.to(torch.float64)) for spectrum in spectra]
    values = torch.cat([*relative, torch.zeros(1, dtype=torch.float64)])
    # One step above the quotient, so that σ_j > ε·σ_1 is false for its own j whatever the rounding.
    above = torch.nextafter(values, torch.ones_like(values))
    kept = above[above < 1.0].unique()
    return [0.0, *kept.tolist()]


def _site_plan(spectrum: Spectrum, eps: float) -> SitePlan:
    wanted = int(eps_rank(spectrum.sigma, eps))
    rank = max(wanted, 1)
    if spectrum.stored_rank is None:
        if not factoring_pays(spectrum.shape, rank):
            return _kept(spectrum, eps)
        after = factored_parameters(spectrum.shape, rank)
    else:
        after = rank * sum(spectrum.shape)
        if after >= spectrum.stored:
            return _kept(spectrum, eps)
    sigma = spectrum.sigma
    return SitePlan(
        name=spectrum.name,
        shape=spectrum.shape,
        layout="factored",
        rank=rank,
        eps_rank=wanted,
        changed=True,
        before=spectrum.stored,
        after=after,
        sigma_max=float(sigma[0]),
        error=float(sigma[rank]) if rank < len(sigma) else 0.0,
    )


def _kept(spectrum: Spectrum, eps: float) -> SitePlan:
    stored = spectrum.stored_rank
    return SitePlan(
        name=spectrum.name,
        shape=spectrum.shape,
        layout="dense" if stored is None else "factored",
        rank=min(spectrum.shape) if stored is None else stored,
        eps_rank=int(eps_rank(spectrum.sigma, eps)),
        changed=False,
        before=spectrum.stored,
        after=spectrum.stored,
        sigma_max=float(spectrum.sigma[0]),
        error=0.0,
    )
