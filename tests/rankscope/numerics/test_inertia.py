"""Counts by inertia against counts of singular values, on spectra that keep a gap at every ε."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import OptionError
from rankscope.numerics import inertia, lanczos, singular_values
from rankscope.numerics.inertia import eps_ranks_by_inertia, positive_eigenvalues
from rankscope.numerics.workspace import Workspace

LEVELS = (0.5, 0.1, 0.05, 0.01, 1e-3, 1e-4)


def prescribed(sigma: torch.Tensor, rows: int, columns: int, seed: int) -> torch.Tensor:
    """UΣVᵀ in float64 with random orthonormal factors."""
    generator = torch.Generator().manual_seed(seed)
    k = len(sigma)
    u = torch.linalg.qr(torch.randn(rows, k, generator=generator, dtype=torch.float64)).Q
    v = torch.linalg.qr(torch.randn(columns, k, generator=generator, dtype=torch.float64)).Q
    built = (u * sigma) @ v.T
    assert built.shape == (rows, columns)
    return built


@st.composite
def gapped(draw: st.DrawFn) -> tuple[torch.Tensor, list[int]]:
    """A spectrum whose relative values stay 1 % away from every level, in shuffled order, and its ε-ranks."""
    between = draw(st.lists(st.integers(0, 5), min_size=len(LEVELS) + 1, max_size=len(LEVELS) + 1))
    edges = (1.0, *LEVELS, 1e-6)
    values = [1.0]
    for count, high, low in zip(between, edges[:-1], edges[1:], strict=True):
        shares = draw(st.lists(st.floats(0.0, 1.0), min_size=count, max_size=count))
        values += [low * 1.01 + share * (high * 0.99 - low * 1.01) for share in shares]
    scale = draw(st.sampled_from([1e-20, 1e-3, 1.0, 1e5, 1e18]))
    ranks = [sum(value > level for value in values) for level in LEVELS]
    return scale * torch.tensor(sorted(values, reverse=True), dtype=torch.float64), ranks


@settings(max_examples=60, deadline=None)
@given(spectrum=gapped(), extra=st.tuples(st.integers(0, 9), st.integers(0, 90)), seed=st.integers(0, 10**6))
def test_counts_equal_the_prescribed_ranks_and_those_of_svdvals(
    spectrum: tuple[torch.Tensor, list[int]], extra: tuple[int, int], seed: int
) -> None:
    sigma, ranks = spectrum
    m = prescribed(sigma, len(sigma) + extra[0], len(sigma) + extra[1], seed)
    assert eps_ranks_by_inertia(m, LEVELS) == ranks
    assert eps_ranks_by_inertia(m.T, LEVELS) == ranks
    values = torch.linalg.svdvals(m)
    assert [int((values > level * values[0]).sum()) for level in LEVELS] == ranks


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(97, 300))
def test_several_blocks_count_like_svdvals_on_random_matrices(seed: int, size: int) -> None:
    m = torch.randn(size, size + seed % 40, generator=torch.Generator().manual_seed(seed))
    values = torch.linalg.svdvals(m.to(torch.float64))
    relative = values / values[0]
    safe = [level for level in LEVELS if float((relative - level).abs().min()) > 1e-6]
    assert eps_ranks_by_inertia(m, safe) == [int((relative > level).sum()) for level in safe]


def test_counts_stay_exact_down_to_1e_4_at_width_768() -> None:
    sigma = torch.logspace(0, -6, 768, dtype=torch.float64)
    m = prescribed(sigma, 768, 768, 0)
    levels = [1e-1, 1e-2, 1e-3, 1e-4]
    assert eps_ranks_by_inertia(m, levels) == [int((sigma > level).sum()) for level in levels]


def test_a_tiny_leading_block_falls_back_to_pivoting(monkeypatch: pytest.MonkeyPatch) -> None:
    # the first diagonal block is τI up to 1e-13, so eliminating it without pivoting would lose every digit
    size, shift = 2 * inertia._BLOCK, 0.25
    g = torch.zeros(size, size, dtype=torch.float64)
    half = size // 2
    g[:half, :half] = torch.eye(half, dtype=torch.float64) * (shift + 1e-13)
    mixing = torch.randn(half, half, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    g[half:, :half], g[:half, half:] = mixing, mixing.T
    expected = int((torch.linalg.eigvalsh(g) > shift).sum())
    assert inertia._by_blocks(g, shift, Workspace()) is None
    assert positive_eigenvalues(g, shift) == expected == half


def test_zero_and_rank_one_and_empty() -> None:
    assert eps_ranks_by_inertia(torch.zeros(5, 3), [0.1, 0.5]) == [0, 0]
    assert eps_ranks_by_inertia(torch.ones(5, 3), [0.1, 0.5]) == [1, 1]
    assert eps_ranks_by_inertia(torch.zeros(0, 3), [0.1]) == [0]
    assert eps_ranks_by_inertia(torch.eye(7), [0.999, 0.1]) == [7, 7]
    assert eps_ranks_by_inertia(torch.tensor([[2.0]]), [0.1]) == [1]


@pytest.mark.parametrize("eps", [0.0, 1e-6, -0.1, 1.0, float("nan")])
def test_levels_that_inertia_cannot_count_are_refused(eps: float) -> None:
    with pytest.raises(OptionError, match="eps"):
        eps_ranks_by_inertia(torch.eye(3), [eps])


def test_nan_is_refused() -> None:
    with pytest.raises(OptionError, match="NaN"):
        eps_ranks_by_inertia(torch.tensor([[1.0, float("nan")]]), [0.1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_half_precision_counts_what_its_values_are(dtype: torch.dtype) -> None:
    m = torch.randn(40, 60, generator=torch.Generator().manual_seed(3)).to(dtype)
    values = singular_values(m, method="svd", dtype=torch.float64)
    assert eps_ranks_by_inertia(m, [0.3]) == [int((values > 0.3 * values[0]).sum())]


@settings(max_examples=20, deadline=None)
@given(size=st.integers(1, 120), seed=st.integers(0, 10**6), power=st.integers(0, 12))
def test_lanczos_finds_the_largest_eigenvalue(size: int, seed: int, power: int) -> None:
    sigma = torch.logspace(0, -power / 4, size, dtype=torch.float64)
    m = prescribed(sigma, size, size, seed)
    assert lanczos.largest_eigenvalue(m @ m.T) == pytest.approx(1.0, rel=1e-7)


@pytest.mark.parametrize("second", [0.999999999, 0.9999, 0.99, 0.1, 1e-4, 0.0])
def test_lanczos_is_not_misled_by_a_pair_or_by_an_early_end(second: float) -> None:
    # an isolated leading value converges long before the first check, where orthogonality is already lost
    values = second * torch.linspace(1.0, 0.5, 200, dtype=torch.float64)
    values[0] = 1.0
    m = prescribed(values.sqrt(), 200, 200, 5)
    assert lanczos.largest_eigenvalue(m @ m.T) == pytest.approx(1.0, rel=1e-7)


@pytest.mark.parametrize("rank", [0, 1, 7, 150, 299, 300])
def test_blocks_that_are_definite_either_way_count_what_was_prescribed(rank: int) -> None:
    sigma = torch.full((300,), 0.02, dtype=torch.float64)
    sigma[:rank] = torch.linspace(1.0, 0.2, rank, dtype=torch.float64)
    m = prescribed(sigma, 300, 300, 6)
    assert positive_eigenvalues(m @ m.T, 0.01) == rank
    assert inertia._by_blocks(m @ m.T, 0.01, Workspace()) in (rank, None)
