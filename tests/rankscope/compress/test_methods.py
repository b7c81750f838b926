"""Decompositions of one matrix, each against the best that there is in its norm."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.compress import truncated_svd
from rankscope.compress.calibration import InputMoments
from rankscope.compress.methods import METHODS, asvd, random_projection, svd, theorem3, whitened
from rankscope.errors import DataError, OptionError
from rankscope.numerics import FactoredMatrix, symmetric_root


def matrix_with(sigma: torch.Tensor, rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    left = torch.linalg.qr(torch.randn(rows, len(sigma), generator=generator, dtype=torch.float64)).Q
    right = torch.linalg.qr(torch.randn(columns, len(sigma), generator=generator, dtype=torch.float64)).Q
    return left @ torch.diag(sigma.double()) @ right.T


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(2, 14), columns=st.integers(2, 14), rank=st.integers(1, 14), seed=st.integers(0, 10_000))
def test_errors_equal_the_tails(rows: int, columns: int, rank: int, seed: int) -> None:
    """Eckart–Young: the spectral error is the next singular value, the Frobenius error the norm of the rest."""
    k = min(rows, columns)
    rank = min(rank, k)
    sigma = 3.0 * 0.6 ** torch.arange(k, dtype=torch.float64)
    matrix = matrix_with(sigma, rows, columns, seed)
    error = matrix - truncated_svd(matrix, rank).dense()
    tail = torch.cat([sigma[rank:], torch.zeros(1, dtype=torch.float64)])
    assert float(torch.linalg.matrix_norm(error, 2)) == pytest.approx(float(tail[0]), abs=1e-11)
    assert float(torch.linalg.matrix_norm(error)) == pytest.approx(float(tail.norm()), abs=1e-11)


def test_no_random_matrix_of_the_rank_is_closer() -> None:
    generator = torch.Generator().manual_seed(1)
    matrix = torch.randn(9, 7, generator=generator, dtype=torch.float64)
    best = float(torch.linalg.matrix_norm(matrix - truncated_svd(matrix, 3).dense()))
    for _ in range(50):
        basis = torch.linalg.qr(torch.randn(9, 3, generator=generator, dtype=torch.float64)).Q
        assert float(torch.linalg.matrix_norm(matrix - basis @ (basis.T @ matrix))) >= best


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_factors_are_balanced_and_keep_the_dtype(dtype: torch.dtype) -> None:
    matrix = matrix_with(torch.tensor([5.0, 2.0, 1.0]), 8, 6).to(dtype)
    made = truncated_svd(matrix, 2)
    assert made.up.dtype == made.down.dtype == dtype
    assert float(made.up.double().norm()) == pytest.approx(float(made.down.double().norm()), rel=1e-2)
    error = torch.linalg.matrix_norm(matrix.double() - made.up.double() @ made.down.double(), 2)
    assert float(error) == pytest.approx(1.0, abs=4 * 5 * torch.finfo(dtype).eps)


def test_half_precision_is_upcast_once() -> None:
    """Equal to decomposing in float32 and rounding at the end, bit for bit."""
    matrix = matrix_with(torch.tensor([5.0, 2.0, 1.0]), 8, 6).to(torch.bfloat16)
    wide = truncated_svd(matrix.float(), 2)
    made = truncated_svd(matrix, 2)
    assert torch.equal(made.up, wide.up.to(torch.bfloat16))
    assert torch.equal(made.down, wide.down.to(torch.bfloat16))


def test_zero_matrix_gives_zero_factors() -> None:
    made = truncated_svd(torch.zeros(4, 5), 1)
    assert made.rank == 1
    assert not made.up.any()
    assert not made.down.any()


def test_factored_input_equals_dense_input() -> None:
    generator = torch.Generator().manual_seed(2)
    stored = FactoredMatrix(
        torch.randn(9, 4, generator=generator, dtype=torch.float64),
        torch.randn(4, 7, generator=generator, dtype=torch.float64),
    )
    from_factors = truncated_svd(stored, 2).dense()
    from_dense = truncated_svd(stored.dense(), 2).dense()
    torch.testing.assert_close(from_factors, from_dense, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rank", [0, 5])
def test_ranks_that_do_not_fit_are_refused(rank: int) -> None:
    with pytest.raises(OptionError, match=r"rank \d is outside 1…4"):
        truncated_svd(torch.ones(4, 5), rank)


SHAPES = [(5, 8), (8, 5), (6, 6), (1, 4), (4, 1)]


def matrix(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def moments(c: Tensor, loudness: Tensor | None = None) -> InputMoments:
    """Moments whose C is ``c``."""
    zero = torch.zeros(len(c), dtype=torch.float64)
    return InputMoments(1, 1, 1.0, zero, c, torch.zeros_like(c), c.diagonal().sqrt() if loudness is None else loudness)


def coloured(seed: int, d: int, rank: int | None = None) -> Tensor:
    """A second moment of unequal, correlated channels; singular below rank d."""
    rows = matrix(seed + 1, d if rank is None else rank, d) * 3.0 ** torch.arange(d, dtype=torch.float64)
    return rows.T @ rows / 3.0**d


def error(w: Tensor, approximation: Tensor, c: Tensor) -> float:
    """‖(W − W̃) C^{1/2}‖_F."""
    return float(((w - approximation) @ symmetric_root(c)[0]).norm())


def alternating(w: Tensor, c: Tensor, rank: int, seed: int, sweeps: int = 300) -> float:
    """Error of factors that alternating least squares finds from a random start."""
    seen = w @ symmetric_root(c)[0]
    up = matrix(seed, w.shape[0], rank)
    for _ in range(sweeps):
        down = torch.linalg.lstsq(up, seen, driver="gelsd").solution
        up = torch.linalg.lstsq(down.T, seen.T, driver="gelsd").solution.T
    return float((seen - up @ down).norm())


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), shape=st.sampled_from(SHAPES), lacking=st.integers(0, 3))
def test_whitened_is_the_closed_form_optimum_at_every_rank(seed: int, shape: tuple[int, int], lacking: int) -> None:
    """Eckart–Young on W C^{1/2}, with C singular where ``lacking`` directions never occur."""
    w, c = matrix(seed, *shape), coloured(seed, shape[1], max(1, shape[1] - lacking))
    best = torch.linalg.svdvals(w @ symmetric_root(c)[0])
    found = whitened(w, moments(c))
    scale = float(best.norm())
    assert found.sigma.shape == best.shape
    torch.testing.assert_close(found.sigma, best, rtol=1e-7, atol=1e-6 * scale)
    for rank in range(1, min(shape) + 1):
        cut = float(best[rank:].square().sum()) ** 0.5
        assert error(w, found.at(rank).dense(), c) == pytest.approx(cut, rel=1e-7, abs=2e-6 * scale)
        assert float(found.sigma[rank:].square().sum()) ** 0.5 == pytest.approx(cut, rel=1e-7, abs=2e-6 * scale)


@pytest.mark.parametrize("shape", SHAPES[:3])
@pytest.mark.parametrize("rank_of_c", [None, 3])
def test_no_search_beats_whitened(shape: tuple[int, int], rank_of_c: int | None) -> None:
    w, c = matrix(3, *shape), coloured(3, shape[1], rank_of_c)
    for rank in (1, 2):
        best = error(w, whitened(w, moments(c)).at(rank).dense(), c)
        searched = [alternating(w, c, rank, seed) for seed in range(3)]
        assert min(searched) >= best * (1 - 1e-9)
        assert min(searched) <= best * (1 + 1e-3)  # the search works


def test_no_other_method_beats_whitened_and_none_beats_svd_without_inputs() -> None:
    w, c = matrix(5, 6, 8), coloured(5, 8)
    tied = {name: method(w, moments(c), 0) for name, method in METHODS.items()}
    for rank in range(1, 6):
        errors = {name: error(w, found.at(rank).dense(), c) for name, found in tied.items()}
        plain = {name: float((w - found.at(rank).dense()).norm()) for name, found in tied.items()}
        assert min(errors, key=errors.__getitem__) == "whitened"
        assert min(plain, key=plain.__getitem__) == "svd"


@pytest.mark.parametrize("shape", SHAPES)
def test_whitened_is_svd_where_all_directions_are_alike(shape: tuple[int, int]) -> None:
    w = matrix(1, *shape)
    plain, found = svd(w), whitened(w, moments(torch.eye(shape[1], dtype=torch.float64)))
    torch.testing.assert_close(found.sigma, plain.sigma)
    for rank in range(1, min(shape) + 1):
        torch.testing.assert_close(found.at(rank).dense(), plain.at(rank).dense())


@pytest.mark.parametrize("shape", SHAPES)
def test_asvd_is_svd_where_all_channels_are_equally_loud(shape: tuple[int, int]) -> None:
    w, loud = matrix(2, *shape), torch.full((shape[1],), 7.0, dtype=torch.float64)
    plain, found = svd(w), asvd(w, moments(coloured(2, shape[1]), loud))
    torch.testing.assert_close(found.sigma, plain.sigma * 7.0**0.5)
    for rank in range(1, min(shape) + 1):
        torch.testing.assert_close(found.at(rank).dense(), plain.at(rank).dense())


def test_asvd_spares_loud_channels_and_survives_silent_ones() -> None:
    w = torch.eye(4, dtype=torch.float64)
    loud = torch.tensor([0.0, 1.0, 100.0, 2.0], dtype=torch.float64)
    kept = asvd(w, moments(torch.eye(4, dtype=torch.float64), loud)).at(2).dense()
    torch.testing.assert_close(kept, torch.diag(torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=torch.float64)))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), shape=st.sampled_from(SHAPES), lacking=st.integers(0, 3))
def test_theorem3_keeps_its_bound(seed: int, shape: tuple[int, int], lacking: int) -> None:
    """‖(W − W̃)C^{1/2}‖₂ ≤ ‖W‖₂ σ_{r+1}, σ the singular values of the inputs over √tokens; W̃ = W U_r U_rᵀ."""
    w, c = matrix(seed, *shape), coloured(seed, shape[1], max(1, shape[1] - lacking))
    root, values = symmetric_root(c)
    found = theorem3(w, moments(c))
    torch.testing.assert_close(found.sigma, values.sqrt(), rtol=1e-7, atol=2e-6 * float(values[0]) ** 0.5)
    inputs = torch.linalg.eigh(c).eigenvectors.flip(1)
    for rank in range(1, min(shape) + 1):
        kept = found.at(rank).dense()
        torch.testing.assert_close(kept, w @ inputs[:, :rank] @ inputs[:, :rank].T, rtol=1e-9, atol=1e-9)
        tail = float(values[rank]) ** 0.5 if rank < len(values) else 0.0
        bound = float(torch.linalg.matrix_norm(w, 2)) * tail
        assert float(torch.linalg.matrix_norm((w - kept) @ root, 2)) <= bound * (1 + 1e-9) + 1e-9 * float(values[0])


def test_random_projection_is_seeded_and_projects() -> None:
    w = matrix(4, 5, 7)
    first, again, other = (random_projection(w, seed=seed).at(3).dense() for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
    whole = random_projection(w, seed=1)
    torch.testing.assert_close(whole.down @ whole.down.T, torch.eye(5, dtype=torch.float64))
    torch.testing.assert_close(whole.up, w @ whole.down.T)
    assert bool((whole.sigma[1:] <= whole.sigma[:-1]).all())


@pytest.mark.parametrize("shape", SHAPES)
def test_what_theorem3_and_random_lose_is_what_no_term_holds_too(shape: tuple[int, int]) -> None:
    w, white = matrix(8, *shape), torch.eye(shape[1], dtype=torch.float64)
    for rank in range(1, min(shape) + 1):
        drawn, led = random_projection(w, seed=2), theorem3(torch.eye(shape[1]), moments(white))
        missed = (w - drawn.at(rank).dense()).square().sum()
        assert float(drawn.sigma[rank:].square().sum()) == pytest.approx(float(missed), abs=1e-9)
        assert float(led.sigma[rank:].square().sum()) == pytest.approx(shape[1] - rank)
        assert bool((drawn.sigma[: rank - 1] >= drawn.sigma[rank - 1]).all())
        assert bool((drawn.sigma[rank:] <= drawn.sigma[rank - 1]).all())


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("shape", SHAPES)
def test_all_terms_are_the_matrix(name: str, shape: tuple[int, int]) -> None:
    """Wherever there are as many terms as inputs, or the method's terms are orthogonal outputs."""
    w = matrix(6, *shape)
    found = METHODS[name](w, moments(coloured(6, shape[1])), 0)
    assert found.up.shape[1] == found.down.shape[0] == min(shape)
    if shape[1] <= shape[0] or name in ("svd", "whitened", "asvd"):
        torch.testing.assert_close(found.at(min(shape)).dense(), w, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", METHODS)
def test_factored_matrices_are_taken_as_their_product(name: str) -> None:
    factors = FactoredMatrix(matrix(7, 6, 3), matrix(8, 3, 5))
    c = moments(coloured(7, 5))
    whole, parts = (METHODS[name](m, c, 0) for m in (factors.dense(), factors))
    torch.testing.assert_close(whole.sigma, parts.sigma, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(whole.at(2).dense(), parts.at(2).dense(), rtol=1e-6, atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-4, 1e3]))
def test_scaling_the_inputs_scales_the_worth_and_nothing_else(seed: int, scale: float) -> None:
    w, c = matrix(seed, 4, 6), coloured(seed, 6)
    assume(float(whitened(w, moments(c)).sigma.diff().abs().min()) > 1e-3)
    small, large = whitened(w, moments(c)), whitened(w, moments(c * scale**2))
    torch.testing.assert_close(large.sigma, small.sigma * scale, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(large.at(2).dense(), small.at(2).dense(), rtol=1e-6, atol=1e-8)


def test_zero_matrix_and_zero_inputs() -> None:
    w, nothing = matrix(9, 3, 4), torch.zeros(4, 4, dtype=torch.float64)
    for name in METHODS:
        zero = METHODS[name](torch.zeros(3, 4), moments(coloured(9, 4)), 0)
        assert not zero.at(1).dense().any()
        unseen = METHODS[name](w, moments(nothing), 0)
        assert bool(torch.isfinite(unseen.at(2).dense()).all())
    assert whitened(w, moments(nothing)).sigma.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("rank", [0, 4, -1])
def test_ranks_that_there_are_not(rank: int) -> None:
    with pytest.raises(OptionError, match=rf"rank {rank} is outside 1…3 for a 3×4 matrix"):
        svd(matrix(0, 3, 4)).at(rank)


def test_factors_share_their_size_and_fit_half_precision() -> None:
    w = matrix(0, 4, 4) * 1e5
    factors = svd(w).at(3, torch.float16)
    assert bool(torch.isfinite(factors.up).all() and torch.isfinite(factors.down).all())
    torch.testing.assert_close(factors.up.double().norm(dim=0), factors.down.double().norm(dim=1), rtol=1e-2, atol=0.0)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_moments_that_have_overflowed_cannot_be_made(bad: float) -> None:
    c = torch.eye(3, dtype=torch.float64)
    c[1, 1] = bad
    with pytest.raises(DataError, match="NaN or Inf"):
        moments(c)


@pytest.mark.parametrize(("shape", "own"), [((20, 12), 12), ((20, 12), 5), ((12, 20), 12)])
def test_ranks_that_the_inputs_do_not_need_are_used_all_the_same(shape: tuple[int, int], own: int) -> None:
    """Inputs have 3 directions; the cut stays exact on them, and is as close to W as its rank allows a projection."""
    w = matrix_with(0.7 ** torch.arange(own), *shape)
    c = coloured(0, shape[1], rank=3)
    found = whitened(w, moments(c))
    for rank in range(1, 9):
        dense = found.at(rank).dense()
        sigma = torch.linalg.svdvals(w @ symmetric_root(c)[0])
        assert error(w, dense, c) == pytest.approx(float(sigma[rank:].norm()), abs=1e-6 * float(sigma[0]))
        assert int(torch.linalg.matrix_rank(dense, rtol=1e-8)) == min(rank, own)
    assert float((w - dense).norm()) < float((w - found.at(3).dense()).norm())
