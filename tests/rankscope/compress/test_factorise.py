import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.compress import truncated_svd
from rankscope.errors import OptionError
from rankscope.numerics import FactoredMatrix


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
