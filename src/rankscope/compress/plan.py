"""Spectra of all that can be cut, costs of their ranks, and the plan that says which rank where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.numerics import eps_rank, factored_parameters, factoring_pays, validate_eps


@dataclass(frozen=True)
class Spectrum:
    """Singular values of one matrix that can be cut, with what is stored of it now.

    The matrix is a site's W, or, for a head, one of the two products that it is: W_qᵀW_k or W_o W_v, both of shape
    (d_model, d_model) and stored in two factors of the head's own width already.

    Attributes:
        name: tensor name of the dense weight; of a head, its attention's module.
        shape: (d_out, d_in).
        sigma: descending worth of every term in the norm of the method, singular values for plain SVD; values that
            are left out are zero.
        stored_rank: inner size of the stored factors, None for a dense matrix.
        stored_factors: numbers in the stored factors, where those are not r(m+n): heads with sketches of their own.
        layout: how it is stored once it is cut.
        cached: key/value-cache numbers per rank, for one series and one sample path.
        layer: 0-based layer in its stack, for schedules.
        heads: how many heads share the rank: 1 for a head's own matrix.
        rows: rows of the stored factors per rank, each of which has a scale where numbers are whole: one of ``down``,
            or one of each matrix that is as high as the head is wide.
        pair: of a head ``qk`` or ``vo``.
        head: its number.
        worth: what every term is worth to the model's answers, never rising, where that was measured.
    """

    name: str
    shape: tuple[int, int]
    sigma: Float[Tensor, " k"]
    stored_rank: int | None = None
    stored_factors: int | None = None
    layout: Literal["factored", "head-width"] = "factored"
    cached: int = 0
    layer: int = 0
    heads: int = 1
    rows: int = 1
    pair: Literal["", "qk", "vo"] = ""
    head: int = 0
    worth: Float[Tensor, " k"] | None = field(default=None, repr=False)

    @property
    def stored(self) -> int:
        """Numbers stored now: mn dense, r(m+n) factored."""
        if self.stored_rank is None:
            return self.shape[0] * self.shape[1]
        return self.stored_rank * sum(self.shape) if self.stored_factors is None else self.stored_factors

    @property
    def cost(self) -> int:
        """Numbers that every rank stores once the matrix is cut."""
        return sum(self.shape)

    @cached_property
    def values(self) -> Float[Tensor, " k"]:
        """``sigma`` in float64."""
        return self.sigma.to(torch.float64)

    def pays(self, rank: int) -> bool:
        """Tell if cutting to ``rank`` stores fewer numbers than now."""
        if self.stored_rank is None:
            return factoring_pays(self.shape, rank)
        return rank * self.cost < self.stored

    def after(self, rank: int) -> int:
        """Numbers stored at ``rank``; what is stored now where cutting does not pay."""
        if self.stored_rank is None:
            return factored_parameters(self.shape, rank)
        return min(rank * self.cost, self.stored)

    @property
    def cached_rank(self) -> int:
        """The rank that is cached now."""
        return min(self.shape) if self.stored_rank is None else self.stored_rank


@dataclass(frozen=True)
class SitePlan:
    """Rank of one matrix, or width of one head of a pair.

    Attributes:
        spectrum: what is cut.
        rank: inner size of the factors, or width of the head; min(d_out, d_in) for a dense matrix.
        eps_rank: its ε-rank at the plan's ε, 0 for the zero matrix, which is stored with rank 1; in a plan without a
            shared ε the rank that was asked for.
        changed: False where the stored tensors are kept bit for bit.
    """

    spectrum: Spectrum = field(repr=False, compare=False)
    rank: int
    eps_rank: int
    changed: bool

    @property
    def layout(self) -> Literal["dense", "factored", "head-width"]:
        """Layout that it will be stored in."""
        dense = not self.changed and self.spectrum.stored_rank is None
        return "dense" if dense else self.spectrum.layout

    @property
    def before(self) -> int:
        """Numbers stored now."""
        return self.spectrum.stored

    @property
    def after(self) -> int:
        """Numbers stored then."""
        return self.spectrum.after(self.rank)

    @property
    def sigma_max(self) -> float:
        """σ_1."""
        return float(self.spectrum.sigma[0])

    @property
    def error(self) -> float:
        """σ_{rank+1}: for plain SVD the spectral norm of what is cut off; 0 where nothing is."""
        sigma = self.spectrum.sigma
        return float(sigma[self.rank]) if self.changed and self.rank < len(sigma) else 0.0

    @property
    def lost(self) -> float:
        """Share of Σσ² that is cut off."""
        squares = self.spectrum.values.square()
        energy = float(squares.sum())
        return float(squares[self.rank :].sum()) / energy if self.changed and energy else 0.0


@dataclass(frozen=True)
class Plan:
    """A layout and a rank for every selected matrix.

    Attributes:
        eps: the shared tolerance, relative to each matrix's σ_1; None where ranks were allotted in another way.
        target: the size ratio that was asked for, None when another thing was.
        sites: one entry per `Spectrum`.
        allocation: how ranks were allotted.
    """

    eps: float | None
    target: float | None
    sites: tuple[SitePlan, ...]
    allocation: str = "uniform-eps"

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


def site_plan(spectrum: Spectrum, wanted: int) -> SitePlan:
    """Keep ``wanted`` ranks where that stores fewer numbers, and the matrix as it is where it does not.

    A zero matrix, or one of which nothing is wanted, keeps rank 1. What is factored already is cut further but never
    made dense again.
    """
    rank = max(wanted, 1)
    changed = spectrum.pays(rank)
    if not changed:
        rank = min(spectrum.shape) if spectrum.stored_rank is None else spectrum.stored_rank
    return SitePlan(spectrum, rank, wanted, changed)


def plan_by_eps(spectra: Sequence[Spectrum], eps: float, multiple: int = 1) -> Plan:
    """Keep of every site its ε-rank, stored as factors where those are fewer numbers: r(m+n) < mn (Q7).

    A zero matrix, whose ε-rank is 0, keeps rank 1 with zero factors. Factored sites are cut further but never
    made dense again. Ranks are rounded down to a ``multiple``.

    >>> plan = plan_by_eps([Spectrum("q.weight", (4, 4), torch.tensor([1.0, 0.5, 0.01, 0.0]))], 0.6)
    >>> plan.sites[0].layout, plan.sites[0].rank, plan.ratio, plan.sites[0].error
    ('factored', 1, 0.5, 0.5)

    Raises:
        OptionError: ε outside [0, 1).
    """
    eps = validate_eps(eps)
    ranks = [int(eps_rank(spectrum.sigma, eps)) for spectrum in spectra]
    return Plan(eps, None, tuple(site_plan(one, rounded(r, multiple)) for one, r in zip(spectra, ranks, strict=True)))


def rounded(rank: int, multiple: int) -> int:
    """Round down to a multiple, but never to 0.

    >>> rounded(19, 8), rounded(5, 8), rounded(0, 1)
    (16, 8, 0)
    """
    return max(multiple, rank // multiple * multiple) if multiple > 1 else rank
