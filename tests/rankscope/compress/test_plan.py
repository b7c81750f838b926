import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.compress import Plan, Spectrum, plan_by_eps, plan_by_ratio
from rankscope.errors import OptionError
from rankscope.numerics import size_ratio


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
        plan = plan_by_ratio(spectra, ratio)
    except OptionError:
        assert min(reachable) > ratio
        return
    assert plan.ratio <= ratio
    assert plan.ratio == pytest.approx(max([r for r in reachable if r <= ratio], default=plan.ratio))
    assert plan.target == ratio
    if ratio < 1:
        assert plan_by_eps(spectra, plan.eps).sites == plan.sites


def test_ratio_falls_as_eps_grows() -> None:
    spectra = random_spectra(3, count=8)
    ratios = [plan_by_eps(spectra, eps / 50).ratio for eps in range(50)]
    assert all(later <= earlier for earlier, later in itertools.pairwise(ratios))
    assert ratios[0] == 1.0
    assert ratios[-1] < 1.0


@pytest.mark.parametrize("plan", [plan_by_eps(random_spectra(1), 0.0), plan_by_ratio(random_spectra(1), 1.0)])
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
        plan_by_ratio(random_spectra(0), ratio)


def test_a_ratio_below_rank_one_names_the_least() -> None:
    spectra = [Spectrum("q.weight", (4, 4), torch.tensor([1.0, 0.5, 0.2, 0.1]))]
    with pytest.raises(OptionError, match=r"ratio 0.1 is out of reach: .* gives 0.5"):
        plan_by_ratio(spectra, 0.1)
    assert plan_by_ratio(spectra, 0.5).ratio == 0.5


def test_sketches_of_heads_are_joined_only_where_that_stores_less() -> None:
    """Two heads of rank 4 in a 12×12 matrix store 2·4·(6+12) = 144 numbers, as many as one sketch of rank 6."""
    for rank, changed in ((7, False), (6, False), (5, True)):
        sigma = torch.tensor([1.0] * rank + [0.01] * (8 - rank))
        site = plan_by_eps([Spectrum("q.weight", (12, 12), sigma, stored_rank=8, stored_factors=144)], 0.1).sites[0]
        assert (site.layout, site.before, site.changed) == ("factored", 144, changed)
        assert (site.rank, site.after) == ((rank, rank * 24) if changed else (8, 144))
