"""Rules that allot ranks: monotone, inside every budget, and `energy` the best that any ranks can do."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.choices import ALLOCATIONS
from rankscope.compress import Budget, Plan, Spectrum, plan_by_budget
from rankscope.compress.allocate import fitted_growth, least_plan
from rankscope.errors import OptionError
from rankscope.train.rank_schedule import RankDesign, rank_at

UNITS = ("ratio", "parameters", "bytes", "cache-bytes")


def falling(generator: torch.Generator, count: int) -> torch.Tensor:
    return (torch.rand(count, generator=generator, dtype=torch.float64) ** 3).sort(descending=True).values + 1e-3


def heads(seed: int, layers: int = 3, number: int = 2, width: int = 4, d: int = 8) -> list[Spectrum]:
    """Both pairs of every head of a decoder: every rank costs and caches something."""
    generator = torch.Generator().manual_seed(seed)
    return [
        Spectrum(
            f"decoder.block.{layer}.layer.0.SelfAttention",
            (d, d),
            falling(generator, width) * (1 + layer),
            stored_rank=width,
            layout="head-width",
            cached=3 + 2 * (pair == "vo"),
            layer=layer,
            pair=pair,
            head=head,
        )
        for layer in range(layers)
        for pair in ("qk", "vo")
        for head in range(number)
    ]


def matrices(seed: int, layers: int = 3) -> list[Spectrum]:
    """Dense matrices of unlike shapes, of two heads each."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {"q": (8, 12), "wi": (20, 12)}
    return [
        Spectrum(
            f"encoder.block.{layer}.{name}.weight",
            shape,
            falling(generator, min(shape)),
            layer=layer,
            heads=2,
            cached=1,
        )
        for layer in range(layers)
        for name, shape in shapes.items()
    ]


def budget_of(kind: str, spectra: list[Spectrum], share: float) -> Budget:
    """A share of what the spectra cost whole, and 100 numbers that cannot be cut."""
    if kind == "ratio":
        return Budget("ratio", share)
    size = 1 if kind == "parameters" else 4
    whole = sum(one.cached * one.cached_rank if kind == "cache-bytes" else one.stored for one in spectra)
    return Budget(kind, size * (100 + share * whole), fixed=100 * size, itemsize=size)


def ranks(plan: Plan) -> list[int]:
    return [site.rank for site in plan.sites]


@pytest.mark.parametrize("name", ALLOCATIONS)
@pytest.mark.parametrize("make", [heads, matrices])
@pytest.mark.parametrize("kind", UNITS)
def test_every_rule_meets_every_budget_and_falls_with_it(name: str, make: Callable[..., Any], kind: str) -> None:
    multiple = 1 + len(name) % 2
    spectra = make(len(name + kind))
    spectra = [replace(one, worth=one.values.square() * (1.0 + index)) for index, one in enumerate(spectra)]
    found = []
    for share in (0.2, 0.4, 0.6, 1.0):
        budget = budget_of(kind, spectra, share)
        try:
            plan = plan_by_budget(spectra, budget, name, multiple)
        except OptionError:
            assert budget.used(least_plan(spectra, budget, name, multiple).sites) > budget.limit
            continue
        assert budget.used(plan.sites) <= budget.limit
        assert plan.allocation == name
        assert all(site.rank % multiple == 0 for site in plan.sites if site.changed)
        found.append(plan)
    assert found
    for less, more in itertools.pairwise(found):
        assert all(a <= b for a, b in zip(ranks(less), ranks(more), strict=True))
        assert less.after <= more.after


@pytest.mark.parametrize("name", ["uniform-eps", "energy", "sensitivity", "uniform-ratio"])
def test_nothing_that_would_fit_is_left_out(name: str) -> None:
    """Within one rank of the limit, where no two ranks come at once."""
    spectra = heads(1)
    for share in torch.linspace(0.3, 0.95, 7).tolist():
        budget = budget_of("parameters", spectra, share)
        left = budget.limit - budget.used(plan_by_budget(spectra, budget, name).sites)
        step = len(spectra) if name == "uniform-ratio" else 1  # all of them take their next rank together
        assert 0 <= left < step * max(one.cost for one in spectra)


def lost(spectra: list[Spectrum], kept: tuple[int, ...]) -> float:
    return sum(float(one.values[rank:].square().sum()) for one, rank in zip(spectra, kept, strict=True))


@pytest.mark.parametrize("kind", ["ratio", "cache-bytes"])
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10**6), share=st.sampled_from([0.4, 0.6, 0.8]))
def test_energy_is_the_best_of_all_combinations_of_ranks(kind: str, seed: int, share: float) -> None:
    """No other ranks that cost as little lose less: 4⁴ combinations, unequal widths and costs."""
    generator = torch.Generator().manual_seed(seed)
    spectra = [
        Spectrum(f"a.{i}", (d, d), falling(generator, 4) * size, stored_rank=4, layout="head-width", cached=2 + i)
        for i, (d, size) in enumerate([(5, 1.0), (5, 3.0), (40, 3.0), (40, 1.0)])
    ]
    budget = budget_of(kind, spectra, share)
    plan = plan_by_budget(spectra, budget, "energy")
    used, best = budget.used(plan.sites), lost(spectra, tuple(ranks(plan)))

    def cost(kept: tuple[int, ...]) -> float:
        if kind == "ratio":
            return sum(one.cost * rank for one, rank in zip(spectra, kept, strict=True)) / plan.before
        cached = sum(one.cached * rank for one, rank in zip(spectra, kept, strict=True))
        return budget.fixed + cached * budget.itemsize

    assert cost(tuple(ranks(plan))) == pytest.approx(used)
    for kept in itertools.product(range(1, 5), repeat=4):
        assert cost(kept) > used + 1e-9 or lost(spectra, kept) >= best * (1 - 1e-9) - 1e-12


def test_energy_follows_worth_per_number_wherever_it_is() -> None:
    rich = Spectrum("a.qk.0", (4, 4), torch.tensor([3.0, 3.0, 3.0, 3.0]), stored_rank=4, layout="head-width")
    poor = Spectrum("a.qk.1", (4, 4), torch.tensor([1.0, 1.0, 1.0, 1.0]), stored_rank=4, layout="head-width")
    wide = Spectrum("b.qk.0", (40, 40), torch.tensor([4.0, 4.0, 4.0, 4.0]), stored_rank=4, layout="head-width")
    plan = plan_by_budget([rich, poor], Budget("ratio", 0.7), "energy")
    assert ranks(plan) == [4, 1]
    plan = plan_by_budget([rich, wide], Budget("ratio", 0.4), "energy")
    assert ranks(plan) == [4, 1]  # 16 per term of 80 numbers is less than 9 per term of 8
    wide = Spectrum("b.qk.0", (40, 40), torch.tensor([10.0] * 4), stored_rank=4, layout="head-width")
    plan = plan_by_budget([rich, wide], Budget("ratio", 0.95), "energy")
    assert ranks(plan) == [1, 4]  # and 100 is more


def test_sensitivity_weighs_energy() -> None:
    spectra = heads(3)
    even = plan_by_budget(spectra, Budget("ratio", 0.5), "sensitivity")
    assert ranks(even) == ranks(plan_by_budget(spectra, Budget("ratio", 0.5), "energy"))
    heard = [replace(one, worth=one.values.square() * (one.pair == "vo")) for one in spectra]
    plan = plan_by_budget(heard, Budget("ratio", 0.5), "sensitivity")
    assert {site.rank for site in plan.sites if site.spectrum.pair == "qk"} == {1}
    assert all(a >= b for a, b, one in zip(ranks(plan), ranks(even), spectra, strict=True) if one.pair == "vo")
    assert ranks(plan_by_budget(heard, Budget("ratio", 0.5), "energy")) == ranks(even)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), share=st.floats(0.3, 0.95))
def test_uniform_ratio_leaves_every_matrix_the_same_share(seed: int, share: float) -> None:
    """Each as near below one share as its ranks allow, that share is met, and so is the target."""
    for spectra in (heads(seed), matrices(seed)):
        plan = plan_by_budget(spectra, Budget("ratio", share), "uniform-ratio")
        wanted = [site.eps_rank * one.cost / one.stored for one, site in zip(spectra, plan.sites, strict=True)]
        highest = max(wanted)
        assert highest <= 1
        for one, mine in zip(spectra, wanted, strict=True):
            assert mine <= highest < mine + one.cost / one.stored + 1e-9


def test_uniform_eps_keeps_all_above_one_tolerance() -> None:
    spectra = heads(5)
    plan = plan_by_budget(spectra, Budget("ratio", 0.5))
    assert plan.eps is not None
    for one, site in zip(spectra, plan.sites, strict=True):
        assert site.rank == max(1, int((one.values / one.values[0] > plan.eps).sum()))


def test_a_schedule_grows_with_depth_as_the_flow_does() -> None:
    """Ranks that hold 99 % of the energy grow as (1+i)^0.5 in one kind of matrix and not at all in the other."""
    spectra = []
    for layer in range(6):
        for pair, exponent in (("qk", 0.5), ("vo", 0.0)):
            flat = round(8 * (1 + layer) ** exponent)
            sigma = torch.cat([torch.ones(flat), torch.full((32 - flat,), 1e-4)])
            name = f"encoder.block.{layer}.layer.0.SelfAttention"
            spectra.append(Spectrum(name, (64, 64), sigma, stored_rank=32, layout="head-width", layer=layer, pair=pair))
    growth = fitted_growth(spectra)
    assert growth["encoder.block.layer.SelfAttention.qk"] == pytest.approx(0.5, abs=0.05)
    assert growth["encoder.block.layer.SelfAttention.vo"] == 0.0
    plan = plan_by_budget(spectra, Budget("ratio", 0.3), "schedule")
    widths = {pair: [s.rank for s in plan.sites if s.spectrum.pair == pair] for pair in ("qk", "vo")}
    assert widths["qk"] == sorted(widths["qk"])
    assert widths["qk"][-1] > widths["qk"][0] == widths["vo"][0]
    assert len(set(widths["vo"])) == 1
    first = [r0 / 4 for r0 in range(1, 128) if rank_at(RankDesign(r0 / 4, growth[next(iter(growth))]), 0, 32)]
    assert any(
        widths["qk"]
        == [rank_at(RankDesign(r0, growth["encoder.block.layer.SelfAttention.qk"]), i, 32) for i in range(6)]
        for r0 in first
    )


def test_a_schedule_never_shrinks_with_depth() -> None:
    spectra = [
        Spectrum(f"encoder.block.{i}.q.weight", (8, 8), torch.tensor([1.0] * (6 - i) + [1e-4] * (2 + i)), layer=i)
        for i in range(4)
    ]
    assert fitted_growth(spectra) == {"encoder.block.q": 0.0}


@pytest.mark.parametrize("name", ALLOCATIONS)
def test_ratio_one_changes_nothing(name: str) -> None:
    for spectra in (heads(0), matrices(0)):
        plan = plan_by_budget(spectra, Budget("ratio", 1.0), name)
        assert not any(site.changed for site in plan.sites)
        assert plan.ratio == 1.0


@pytest.mark.parametrize("name", ALLOCATIONS)
@pytest.mark.parametrize("kind", UNITS)
def test_a_budget_out_of_reach_names_the_nearest_that_is_not(name: str, kind: str) -> None:
    spectra = heads(7)
    budget = budget_of(kind, spectra, 0.05)
    with pytest.raises(OptionError, match="out of reach") as caught:
        plan_by_budget(spectra, budget, name)
    text = str(caught.value)
    assert "\n" not in text
    assert name in text
    nearest = float(text.partition("gives ")[2].split()[0])
    near = Budget(kind, nearest, budget.fixed, budget.itemsize)
    assert near.used(plan_by_budget(spectra, near, name).sites) <= nearest
    with pytest.raises(OptionError, match="out of reach"):
        plan_by_budget(spectra, Budget(kind, nearest * 0.99, budget.fixed, budget.itemsize), name)


def test_words_that_are_not_known() -> None:
    with pytest.raises(OptionError, match="did you mean 'energy'"):
        plan_by_budget(heads(0), Budget("ratio", 0.5), "enrgy")
    with pytest.raises(OptionError, match="did you mean 'bytes'"):
        Budget("byte", 5)
    with pytest.raises(OptionError, match="is no budget"):
        Budget("parameters", 0)
    with pytest.raises(OptionError, match="ratio must lie"):
        Budget("ratio", 1.5)
