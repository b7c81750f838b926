"""Allocation of ranks to matrices: rules with one free level, and the search for the level that a budget allows.

Every rule maps a level to ranks that fall as the level rises. That makes them comparable and every budget one
bisection.

``uniform-eps`` keeps every σ_j > ε σ_1, one ε for all. ``uniform-ratio`` leaves every matrix the same share of what it
stores. ``energy`` is water-filling: it keeps the terms with the largest σ_j² per stored number, wherever they are.
Every matrix' terms come in falling order and cost the same, so no plan of that size has a smaller sum of squared
errors, as long as ranks are cheaper than what is stored: for heads always, for a dense matrix below its break-even rank
d_out·d_in/(d_out + d_in). What is given more is stored dense at full cost, and the numbers that its last terms would
have cost buy nothing: energy is optimal among the plans that stay below. ``sensitivity`` does the same with what every
term was measured to be worth to the model's answers in the place of σ_j². ``schedule`` gives layer i of every stack and
role the rank ⌈r0 (1+i)^α⌉, α fitted to the ranks that hold 99 % of the energy in each layer, r0 the level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.choices import ALLOCATIONS
from rankscope.compress.options import SENSITIVITY, Budget
from rankscope.compress.plan import Plan, Spectrum, plan_by_eps, rounded, site_plan
from rankscope.errors import OptionError, unknown_choice
from rankscope.numerics import relative_spectrum
from rankscope.train.rank_schedule import RankDesign, rank_at

ENERGY_OF_SCHEDULE = 0.99
"""Share of Σσ² whose rank, layer by layer, a schedule's growth is fitted to."""
_ROUNDING = 1e-9


def plan_by_budget(
    spectra: Sequence[Spectrum], budget: Budget, allocation: str = "uniform-eps", multiple: int = 1
) -> Plan:
    """Keep as much as a budget allows.

    Args:
        spectra: what can be cut.
        budget: what must not be exceeded.
        allocation: one of `rankscope.choices.ALLOCATIONS`.
        multiple: ranks are rounded down to multiples of it, but never to 0; GPUs like 8.

    Returns:
        The plan of the lowest level that the budget allows.

    Raises:
        OptionError: an unknown rule, or even the least that it can keep exceeds the budget; it names the nearest that
            would do.
    """
    if allocation not in ALLOCATIONS:
        raise OptionError(unknown_choice("allocation", allocation, ALLOCATIONS))
    if budget.kind == "ratio" and budget.limit == 1.0:
        kept = tuple(replace(site_plan(one, min(one.shape)), eps_rank=_eps_zero(one)) for one in spectra)
        return Plan(0.0 if allocation == "uniform-eps" else None, budget.limit, kept, allocation)
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
    sites = tuple(site_plan(one, rank) for one, rank in zip(spectra, ranks, strict=True))
    target = budget.limit if budget.kind == "ratio" else None
    return Plan(level if allocation == "uniform-eps" else None, target, sites, allocation)


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
    most = max(one.cached_rank // one.heads for one in spectra)
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
    return [one.heads * rank_at(designs[_kind(one)], one.layer, one.cached_rank) for one in spectra]


def _gains(spectrum: Spectrum, allocation: str, budget: Budget) -> Float[Tensor, " k"]:
    cost = budget.cost(spectrum)
    if not cost:
        return torch.full_like(spectrum.values, math.inf)  # what the budget does not count is kept
    measured = spectrum.worth if allocation == SENSITIVITY else None
    return (spectrum.values.square() if measured is None else measured) / cost


def plan_by_ratio(spectra: Sequence[Spectrum], ratio: float) -> Plan:
    """Find the smallest shared ε whose size ratio is not above ``ratio``, by bisection over all σ_j/σ_1.

    The ratio is a falling step function of ε that jumps only at relative singular values, so the search over
    those is exact: no other ε gives a ratio that is closer without exceeding the target. At ratio 1 everything
    is kept as it is.

    Raises:
        OptionError: the ratio is outside (0, 1], or smaller than rank 1 everywhere gives (it names the least).
    """
    return plan_by_budget(spectra, Budget("ratio", ratio))


def fitted_growth(spectra: Sequence[Spectrum]) -> dict[str, float]:
    """Exponent α of r(i) ∝ (1+i)^α by kind of matrix, least squares in logarithms, never below 0.

    r(i) is the mean over the layer's matrices of that kind of the smallest rank that holds 99 % of Σσ².
    """
    ranks: dict[str, dict[int, list[int]]] = {}
    for one in spectra:
        ranks.setdefault(_kind(one), {}).setdefault(one.layer, []).append(max(_energy_rank(one), 1))
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


def _kind(spectrum: Spectrum) -> str:
    """Stack and place in a layer, without the number of the layer or the head."""
    words = [word for word in spectrum.name.removesuffix(".weight").split(".") if not word.isdigit()]
    return ".".join([*words, spectrum.pair] if spectrum.pair else words)


def _eps_zero(spectrum: Spectrum) -> int:
    return int((spectrum.values > 0).sum())


def _just_above(values: Float[Tensor, " n"], below: float = math.inf) -> list[float]:
    """Values one step of rounding higher, so that ``value > level`` is false for the value itself."""
    above = torch.nextafter(values, torch.full_like(values, math.inf))
    return above[above < below].unique().tolist()
