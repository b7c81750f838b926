"""Ranks by ε and by budget, against slow counts and exhaustive searches."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.choices import ALLOCATIONS
from rankscope.compress import Budget, Plan, Spectrum, plan_by_budget, plan_by_eps
from rankscope.compress.plan import fitted_growth, kind_of, least_plan
from rankscope.errors import OptionError
from rankscope.numerics import size_ratio
from rankscope.train.rank_schedule import RankDesign, rank_at


def by_ratio(spectra: list[Spectrum], ratio: float) -> Plan:
    return plan_by_budget(spectra, Budget("ratio", ratio))


def random_spectra(seed: int, count: int = 5) -> list[Spectrum]:
    generator = torch.Generator().manual_seed(seed)
    made = []
    for i in range(count):
        rows, columns = (int(n) for n in torch.randint(2, 12, (2,), generator=generator))
        sigma = torch.rand(min(rows, columns), generator=generator).pow(3).sort(descending=True).values
        made.append(Spectrum(f"site{i}.weight", (rows, columns), sigma))
    return made


def slow_stored(spectrum: Spectrum, eps: float) -> int:
    """Q7 with loops: r(m+n) where that is less than mn, counting σ_j > ε·σ_1 one by one."""
    rows, columns = spectrum.shape
    values = [float(s) for s in spectrum.sigma.double()]
    rank = sum(1 for s in values if s > eps * values[0])
    rank = max(rank, 1)
    factored = rank * (rows + columns)
    return factored if factored < rows * columns else rows * columns


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), eps=st.floats(0, 0.99))
def test_sizes_equal_a_slow_count(seed: int, eps: float) -> None:
    spectra = random_spectra(seed)
    plan = plan_by_eps(spectra, eps)
    assert plan.after == sum(slow_stored(spectrum, eps) for spectrum in spectra)
    assert plan.before == sum(m * n for m, n in (spectrum.shape for spectrum in spectra))
    assert plan.ratio == pytest.approx(size_ratio([s.shape for s in spectra], [s.rank for s in plan.sites]))
    for spectrum, site in zip(spectra, plan.sites, strict=True):
        assert site.error <= eps * float(spectrum.sigma[0])
        assert site.layout == ("factored" if site.after < site.before else "dense")


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), ratio=st.floats(0.05, 1.0))
def test_ratio_is_the_closest_not_above_the_target(seed: int, ratio: float) -> None:
    """Against every ε at which any rank can change."""
    spectra = random_spectra(seed)
    before = sum(s.shape[0] * s.shape[1] for s in spectra)
    steps = sorted({0.0, *(float(v / s.sigma.double()[0]) for s in spectra for v in s.sigma.double())})
    middles = [(a + b) / 2 for a, b in itertools.pairwise(steps) if b - a > 1e-12]
    reachable = [sum(slow_stored(s, e) for s in spectra) / before for e in middles]
    try:
        plan = by_ratio(spectra, ratio)
    except OptionError:
        assert min(reachable) > ratio
        return
    assert plan.ratio <= ratio
    assert plan.ratio == pytest.approx(max([r for r in reachable if r <= ratio], default=plan.ratio))
    if ratio < 1:
        assert plan_by_eps(spectra, plan.eps).sites == plan.sites


def test_ratio_falls_as_eps_grows() -> None:
    spectra = random_spectra(3, count=8)
    ratios = [plan_by_eps(spectra, eps / 50).ratio for eps in range(50)]
    assert all(later <= earlier for earlier, later in itertools.pairwise(ratios))
    assert ratios[0] == 1.0
    assert ratios[-1] < 1.0


@pytest.mark.parametrize("plan", [plan_by_eps(random_spectra(1), 0.0), by_ratio(random_spectra(1), 1.0)])
def test_nothing_changes_at_eps_zero_and_ratio_one(plan: Plan) -> None:
    assert plan.ratio == 1.0
    assert plan.eps == 0.0
    assert not any(site.changed for site in plan.sites)


def test_a_site_stays_dense_where_factors_store_no_less() -> None:
    # 4×4 at rank 2 stores 16 numbers, exactly as many as dense: it must stay.
    spectrum = Spectrum("q.weight", (4, 4), torch.tensor([1.0, 0.9, 0.01, 0.01]))
    assert plan_by_eps([spectrum], 0.1).sites[0].layout == "dense"
    assert plan_by_eps([spectrum], 0.95).sites[0].layout == "factored"


def test_the_comparison_is_strict() -> None:
    spectrum = Spectrum("q.weight", (6, 6), torch.tensor([1.0, 0.5, 0.5, 0.25, 0.0, 0.0]))
    assert plan_by_eps([spectrum], 0.5).sites[0].rank == 1


def test_zero_matrix_is_stored_with_rank_one() -> None:
    site = plan_by_eps([Spectrum("q.weight", (6, 5), torch.zeros(5))], 0.0).sites[0]
    assert (site.layout, site.rank, site.eps_rank, site.after, site.error) == ("factored", 1, 0, 11, 0.0)


def test_factored_sites_are_cut_further_but_never_expanded() -> None:
    sigma = torch.tensor([1.0, 0.5, 0.01])
    kept = plan_by_eps([Spectrum("q.weight", (4, 4), sigma, stored_rank=3)], 0.0).sites[0]
    assert (kept.layout, kept.rank, kept.changed, kept.before, kept.after) == ("factored", 3, False, 24, 24)
    cut = plan_by_eps([Spectrum("q.weight", (4, 4), sigma, stored_rank=3)], 0.1).sites[0]
    assert (cut.layout, cut.rank, cut.changed, cut.before, cut.after) == ("factored", 2, True, 24, 16)


@pytest.mark.parametrize("eps", [-0.1, 1.0, 2.0, float("nan")])
def test_eps_outside_its_range(eps: float) -> None:
    with pytest.raises(OptionError, match="eps must"):
        plan_by_eps(random_spectra(0), eps)


@pytest.mark.parametrize("ratio", [0.0, -1.0, 1.01, float("nan")])
def test_ratio_outside_its_range(ratio: float) -> None:
    with pytest.raises(OptionError, match="ratio must"):
        by_ratio(random_spectra(0), ratio)


def test_a_ratio_below_rank_one_names_the_least() -> None:
    spectra = [Spectrum("q.weight", (4, 4), torch.tensor([1.0, 0.5, 0.2, 0.1]))]
    with pytest.raises(OptionError, match=r"ratio 0.1 is out of reach: .* gives 0.5"):
        by_ratio(spectra, 0.1)
    assert by_ratio(spectra, 0.5).ratio == 0.5


def test_sketches_of_heads_are_joined_only_where_that_stores_less() -> None:
    """Two heads of rank 4 in a 12×12 matrix store 2·4·(6+12) = 144 numbers, as many as one sketch of rank 6."""
    for rank, changed in ((7, False), (6, False), (5, True)):
        sigma = torch.tensor([1.0] * rank + [0.01] * (8 - rank))
        site = plan_by_eps([Spectrum("q.weight", (12, 12), sigma, stored_rank=8, stored_factors=144)], 0.1).sites[0]
        assert (site.layout, site.before, site.changed) == ("factored", 144, changed)
        assert (site.rank, site.after) == ((rank, rank * 24) if changed else (8, 144))


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
    whole = sum(one.cached * one.rank_now if kind == "cache-bytes" else one.stored for one in spectra)
    return Budget(kind, int(size * (100 + share * whole)), fixed=100 * size, itemsize=size)


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


@pytest.mark.parametrize("name", ALLOCATIONS)
def test_what_a_budget_does_not_count_is_kept(name: str) -> None:
    """A budget of the decoder's cache leaves the encoder as it is."""
    decoder = heads(3)
    encoder = [replace(one, name=one.name.replace("decoder", "encoder"), cached=0) for one in heads(4)]
    spectra = [*encoder, *decoder]
    plan = plan_by_budget(spectra, Budget("cache-bytes", sum(one.cached * one.rank_now for one in decoder) * 2), name)
    kept = [site.rank for site in plan.sites]
    assert kept[: len(encoder)] == [one.rank_now for one in encoder]
    assert sum(kept[len(encoder) :]) < sum(one.rank_now for one in decoder)


def test_a_multiple_rounds_the_rank_and_not_the_eps_rank() -> None:
    spectrum = Spectrum("q.weight", (64, 64), torch.cat([torch.ones(19), torch.full((45,), 0.01)]))
    (site,) = plan_by_eps([spectrum], 0.1, multiple=8).sites
    assert (site.rank, site.eps_rank) == (16, 19)


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
    assert growth["encoder.block.*.layer.0.SelfAttention:qk"] == pytest.approx(0.5, abs=0.05)
    assert growth["encoder.block.*.layer.0.SelfAttention:vo"] == 0.0
    plan = plan_by_budget(spectra, Budget("ratio", 0.3), "schedule")
    widths = {pair: [s.rank for s in plan.sites if s.spectrum.pair == pair] for pair in ("qk", "vo")}
    assert widths["qk"] == sorted(widths["qk"])
    assert widths["qk"][-1] > widths["qk"][0] == widths["vo"][0]
    assert len(set(widths["vo"])) == 1
    first = [r0 / 4 for r0 in range(1, 128) if rank_at(RankDesign(r0 / 4, growth[next(iter(growth))]), 0, 32)]
    assert any(
        widths["qk"]
        == [rank_at(RankDesign(r0, growth["encoder.block.*.layer.0.SelfAttention:qk"]), i, 32) for i in range(6)]
        for r0 in first
    )


def test_a_schedule_of_matrices_that_have_fewer_ranks_than_heads() -> None:
    few = Spectrum("encoder.block.0.q.weight", (64, 64), torch.ones(2), stored_rank=2, heads=4)
    with pytest.raises(OptionError, match="out of reach: the least that allocation schedule keeps"):
        plan_by_budget([few], Budget("attention-ratio", 0.5), "schedule")


def test_a_schedule_never_shrinks_with_depth() -> None:
    spectra = [
        Spectrum(f"encoder.block.{i}.q.weight", (8, 8), torch.tensor([1.0] * (6 - i) + [1e-4] * (2 + i)), layer=i)
        for i in range(4)
    ]
    assert fitted_growth(spectra) == {"encoder.block.*.q": 0.0}


def test_kinds_are_places_in_a_block() -> None:
    """Attention over time and over the group of Chronos-2, and both inner matrices of a gated block, stay apart."""
    names = ("layer.0.self_attention.q", "layer.1.self_attention.q", "layer.2.mlp.wi_0", "layer.2.mlp.wi_1")
    sigma = torch.ones(2)
    for name in names:
        kinds = {kind_of(Spectrum(f"encoder.block.{i}.{name}.weight", (2, 2), sigma, layer=i)) for i in range(12)}
        assert kinds == {f"encoder.block.*.{name}"}
    assert kind_of(Spectrum("d_ff2.weight", (2, 2), sigma)) == "d_ff2"


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
    less = nearest * 0.99 if kind == "ratio" else nearest - 1
    with pytest.raises(OptionError, match="out of reach"):
        plan_by_budget(spectra, Budget(kind, less, budget.fixed, budget.itemsize), name)


def test_words_that_are_not_known() -> None:
    with pytest.raises(OptionError, match="did you mean 'energy'"):
        plan_by_budget(heads(0), Budget("ratio", 0.5), "enrgy")
    with pytest.raises(OptionError, match="did you mean 'bytes'"):
        Budget("byte", 5)
    with pytest.raises(OptionError, match="is not a budget"):
        Budget("parameters", 0)
    with pytest.raises(OptionError, match="ratio must lie"):
        Budget("ratio", 1.5)
