"""Spectra of all cuttable matrices, and plans of their ranks: by ε, or by a rule and a budget.

An allocation rule maps a level to ranks that fall as the level rises, so every budget is one bisection.

``uniform-eps`` keeps every σ_j > ε σ_1, one ε for all. ``uniform-ratio`` leaves every matrix the same share of what it
stores. ``energy`` is water-filling: it keeps the terms with the largest σ_j² per stored number, wherever they are.
Every matrix' terms come in falling order and cost the same, so no plan of that size has a smaller sum of squared
errors, as long as ranks are cheaper than what is stored: for heads always, for a dense matrix below its break-even rank
d_out·d_in/(d_out + d_in). What is given more is stored dense at full cost, and the numbers that its last terms would
have cost buy nothing: energy is optimal among the plans that stay below. ``sensitivity`` does the same with the
second-order importance of every term in the place of σ_j². ``schedule`` gives layer i of every stack and role the rank
⌈r0 (1+i)^α⌉, α fitted to the ranks that hold 99 % of the energy in each layer, r0 the level.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.choices import ALLOCATIONS
from rankscope.compress.options import RATIOS, SENSITIVITY, Budget
from rankscope.errors import OptionError, unknown_choice
from rankscope.families.weight_layout import LayoutName
from rankscope.numerics import eps_rank, factored_parameters, factoring_pays, relative_spectrum, validate_eps
from rankscope.train.rank_schedule import RankDesign, rank_at

ENERGY_OF_SCHEDULE = 0.99
"""Share of Σσ² whose rank, layer by layer, a schedule's growth is fitted to."""
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Spectrum:
    """Singular values of one cuttable matrix, and its present size.

    The matrix is a site's W, or, for a head, one of the two products that it is: W_qᵀW_k or W_o W_v, both of shape
    (d_model, d_model) and stored in two factors of the head's own width already. Of a feed-forward
    block a rank is a hidden unit, with its rows and its column.

    Attributes:
        name: tensor name of the dense weight; of a head, its attention's module; of a block, its own.
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
        floats: numbers of every rank that stay floating point where weights are whole numbers, biases.
        per_rank: numbers that every rank stores, where those are not d_out + d_in.
        time: share of the original's time that a rank takes, where that was measured.
        worth: second-order importance of every term, never rising, where that was measured.
    """

    name: str
    shape: tuple[int, int]
    sigma: Float[Tensor, " k"]
    stored_rank: int | None = None
    stored_factors: int | None = None
    layout: Literal["factored", "head-width", "width"] = "factored"
    cached: int = 0
    layer: int = 0
    heads: int = 1
    rows: int = 1
    pair: Literal["", "qk", "vo"] = ""
    head: int = 0
    floats: int = 0
    per_rank: int | None = None
    time: float = 0.0
    worth: Float[Tensor, " k"] | None = field(default=None, repr=False)

    @property
    def stored(self) -> int:
        """Numbers stored now: mn dense, r(m+n) factored."""
        if self.stored_rank is None:
            return self.shape[0] * self.shape[1]
        return self.stored_rank * self.cost if self.stored_factors is None else self.stored_factors

    @property
    def cost(self) -> int:
        """Numbers that every rank stores once the matrix is cut."""
        return self.per_rank or sum(self.shape)

    @cached_property
    def values(self) -> Float[Tensor, " k"]:
        """``sigma`` in float64."""
        return self.sigma.to(torch.float64)

    def pays(self, rank: int) -> bool:
        """True if factors of ``rank`` store fewer numbers than now."""
        if self.stored_rank is None:
            return factoring_pays(self.shape, rank)
        return rank * self.cost < self.stored

    def after(self, rank: int) -> int:
        """Numbers stored at ``rank``; the present ones where factors would not be smaller."""
        if self.stored_rank is None:
            return factored_parameters(self.shape, rank)
        return min(rank * self.cost, self.stored)

    @property
    def rank_now(self) -> int:
        """The rank that it has now."""
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
    def layout(self) -> LayoutName:
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
        sites: one entry per `Spectrum`.
        allocation: how ranks were allotted.
    """

    eps: float | None
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


def kind_of(spectrum: Spectrum) -> str:
    """Cuts that cost alike: the same place in every block, whose number is the first in the name.

    >>> kind_of(Spectrum("encoder.block.3.layer.0.SelfAttention", (4, 4), torch.ones(2), 2, pair="qk"))
    'encoder.block.*.layer.0.SelfAttention:qk'
    """
    place = re.sub(r"(?<=\.)\d+(?=\.|$)", "*", spectrum.name.removesuffix(".weight"), count=1)
    return f"{place}:{spectrum.pair}" if spectrum.pair else place


def site_plan(spectrum: Spectrum, wanted: int) -> SitePlan:
    """Keep ``wanted`` ranks where that stores fewer numbers, and the matrix as it is where it does not.

    A zero matrix, or one of which nothing is wanted, keeps rank 1. What is factored already is cut further but never
    made dense again.
    """
    rank = max(wanted, 1)
    changed = spectrum.pays(rank)
    if not changed:
        rank = spectrum.rank_now
    return SitePlan(spectrum, rank, wanted, changed)


def plan_by_eps(spectra: Sequence[Spectrum], eps: float, multiple: int = 1) -> Plan:
    """Keep of every site its ε-rank, stored as factors where those are fewer numbers: r(m+n) < mn (Q7).

    A zero matrix, whose ε-rank is 0, keeps rank 1 with zero factors. Ranks are rounded down to a ``multiple``.

    >>> plan = plan_by_eps([Spectrum("q.weight", (4, 4), torch.tensor([1.0, 0.5, 0.01, 0.0]))], 0.6)
    >>> plan.sites[0].layout, plan.sites[0].rank, plan.ratio, plan.sites[0].error
    ('factored', 1, 0.5, 0.5)

    Raises:
        OptionError: ε outside [0, 1).
    """
    eps = validate_eps(eps)
    ranks = [int(eps_rank(one.sigma, eps)) for one in spectra]
    pairs = zip(spectra, ranks, strict=True)
    sites = (replace(site_plan(one, rounded(rank, multiple)), eps_rank=rank) for one, rank in pairs)
    return Plan(eps, tuple(sites))


def rounded(rank: int, multiple: int) -> int:
    """Round down to a multiple, one at least.

    >>> rounded(19, 8), rounded(5, 8), rounded(0, 1)
    (16, 8, 0)
    """
    return max(multiple, rank // multiple * multiple) if multiple > 1 else rank


def plan_by_budget(
    spectra: Sequence[Spectrum], budget: Budget, allocation: str = "uniform-eps", multiple: int = 1
) -> Plan:
    """Keep as much as a budget allows.

    Args:
        spectra: what can be cut.
        budget: what must not be exceeded.
        allocation: one of `rankscope.choices.ALLOCATIONS`.
        multiple: ranks are rounded down to multiples of it, but never to 0; GPUs like 8.

    Raises:
        OptionError: an unknown rule, or even the least that it can keep exceeds the budget; it names the nearest that
            would do.
    """
    if allocation not in ALLOCATIONS:
        raise OptionError(unknown_choice("allocation", allocation, ALLOCATIONS))
    if budget.kind in RATIOS and budget.limit == 1.0:
        kept = tuple(replace(site_plan(one, one.rank_now), eps_rank=int((one.values > 0).sum())) for one in spectra)
        return Plan(0.0 if allocation == "uniform-eps" else None, kept, allocation)
    levels = _levels(allocation, spectra, budget)
    low, high = 0, len(levels) - 1
    least = budget.used(_plan_at(spectra, levels[high], budget, allocation, multiple).sites)
    if least > budget.limit:
        raise OptionError(
            f"{budget.kind} {budget.limit:.12g} is out of reach: the least that allocation {allocation} keeps gives "
            f"{budget.shown(least)} with the selected sites; ask for at least that, or select more sites."
        )
    while low < high:
        middle = (low + high) // 2
        if budget.used(_plan_at(spectra, levels[middle], budget, allocation, multiple).sites) <= budget.limit:
            high = middle
        else:
            low = middle + 1
    return _plan_at(spectra, levels[high], budget, allocation, multiple)


def least_plan(spectra: Sequence[Spectrum], budget: Budget, allocation: str, multiple: int = 1) -> Plan:
    """The plan of a rule's highest level: no budget in the unit of ``budget`` that is smaller can be met."""
    return _plan_at(spectra, _levels(allocation, spectra, budget)[-1], budget, allocation, multiple)


def _plan_at(spectra: Sequence[Spectrum], level: float, budget: Budget, allocation: str, multiple: int) -> Plan:
    ranks = [rounded(rank, multiple) for rank in _ranks(allocation, spectra, level, budget)]
    pairs = zip(spectra, ranks, strict=True)
    sites = tuple(site_plan(one, rank if budget.cost(one) else one.rank_now) for one, rank in pairs)
    return Plan(level if allocation == "uniform-eps" else None, sites, allocation)


def _levels(allocation: str, spectra: Sequence[Spectrum], budget: Budget) -> list[float]:
    """All levels at which some rank changes, ascending; the first keeps most."""
    if allocation == "uniform-eps":
        values = torch.cat([relative_spectrum(one.values) for one in spectra])
        return [0.0, *_just_above(values, below=1.0)]
    if allocation in ("energy", SENSITIVITY):
        return [0.0, *_just_above(torch.cat([_gains(one, allocation, budget) for one in spectra]))]
    if allocation == "uniform-ratio":
        shares = {j * one.cost / one.stored for one in spectra for j in range(1, one.stored // one.cost + 1)}
        return sorted(-share for share in {1.0, *shares})
    most = max(1, *(one.rank_now // one.heads for one in spectra))
    return [-r0 / 4 for r0 in range(4 * most, 0, -1)]


def _ranks(allocation: str, spectra: Sequence[Spectrum], level: float, budget: Budget) -> list[int]:
    """Rank of every matrix at a level; 0 where it would keep nothing."""
    if allocation == "uniform-eps":
        return [site.eps_rank for site in plan_by_eps(spectra, level).sites]
    if allocation in ("energy", SENSITIVITY):
        return [int((_gains(one, allocation, budget) > level).sum()) for one in spectra]
    if allocation == "uniform-ratio":
        return [int(-level * one.stored / one.cost + _ROUNDING) for one in spectra]
    designs = {kind: RankDesign(-level, alpha) for kind, alpha in fitted_growth(spectra).items()}
    return [one.heads * rank_at(designs[kind_of(one)], one.layer, one.rank_now) for one in spectra]


def _gains(spectrum: Spectrum, allocation: str, budget: Budget) -> Float[Tensor, " k"]:
    cost = budget.cost(spectrum)
    if not cost:
        return torch.full_like(spectrum.values, math.inf)  # what the budget does not count is kept
    measured = spectrum.worth if allocation == SENSITIVITY else None
    return (spectrum.values.square() if measured is None else measured) / cost


def fitted_growth(spectra: Sequence[Spectrum]) -> dict[str, float]:
    """Exponent α of r(i) ∝ (1+i)^α by kind of matrix, least squares in logarithms, never below 0.

    r(i) is the mean over the layer's matrices of that kind of the smallest rank that holds 99 % of Σσ².
    """
    ranks: dict[str, dict[int, list[int]]] = {}
    for one in spectra:
        ranks.setdefault(kind_of(one), {}).setdefault(one.layer, []).append(max(_energy_rank(one), 1))
    found = {}
    for kind, layers in ranks.items():
        x = torch.tensor([math.log1p(layer) for layer in layers], dtype=torch.float64)
        y = torch.tensor([math.log(sum(r) / len(r)) for r in layers.values()], dtype=torch.float64)
        spread = float((x - x.mean()).square().sum())
        slope = float(((x - x.mean()) * (y - y.mean())).sum()) / spread if spread else 0.0
        found[kind] = max(slope, 0.0)
    return found


def _energy_rank(spectrum: Spectrum) -> int:
    energy = spectrum.values.square().cumsum(0)
    return int((energy < ENERGY_OF_SCHEDULE * energy[-1]).sum()) + 1 if len(energy) else 0


def _just_above(values: Float[Tensor, " n"], below: float = math.inf) -> list[float]:
    """Values one step of rounding higher, so that ``value > level`` is false for the value itself."""
    above = torch.nextafter(values, torch.full_like(values, math.inf))
    return above[above < below].unique().tolist()
