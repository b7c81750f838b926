"""Roots of second moments: exact, of any rank, and no nonsense accepted."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import DataError
from rankscope.numerics import symmetric_root


def moment(seed: int, d: int, rank: int) -> torch.Tensor:
    rows = torch.randn(rank, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return rows.T @ rows / max(rank, 1)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6), d=st.integers(1, 9), rank=st.integers(0, 12), ridge=st.sampled_from([0.0, 1e-6, 0.5])
)
def test_root_times_itself_is_the_moment(seed: int, d: int, rank: int, ridge: float) -> None:
    c = moment(seed, d, rank)
    root, values = symmetric_root(c, ridge)
    whole = c + ridge * c.diagonal().mean() * torch.eye(d, dtype=torch.float64)
    torch.testing.assert_close(root @ root.T, whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(values, torch.linalg.eigvalsh(whole).flip(0).clamp(min=0), rtol=1e-10, atol=1e-12)
    assert bool((values[1:] <= values[:-1]).all())
    assert (root.dtype, values.dtype) == (torch.float64, torch.float64)


def test_float32_is_rooted_in_float64() -> None:
    c = moment(0, 5, 8).float()
    root, _ = symmetric_root(c)
    torch.testing.assert_close(root @ root.T, c.double(), rtol=1e-12, atol=1e-12)


def test_rounding_below_zero_becomes_zero() -> None:
    root, values = symmetric_root(torch.diag(torch.tensor([4.0, -1e-7])))
    assert values.tolist() == [4.0, 0.0]
    assert bool(torch.isfinite(root).all())


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_is_refused(bad: float) -> None:
    c = torch.eye(3)
    c[1, 2] = bad
    with pytest.raises(DataError, match="NaN or Inf"):
        symmetric_root(c)


@pytest.mark.parametrize("diagonal", [[1.0, -1e-3], [-1.0, -1.0]])
def test_a_negative_eigenvalue_is_refused(diagonal: list[float]) -> None:
    with pytest.raises(DataError, match="negative eigenvalue"):
        symmetric_root(torch.diag(torch.tensor(diagonal)))


def test_the_tolerance_is_the_callers() -> None:
    c = torch.diag(torch.tensor([1.0, -1e-3]))
    assert symmetric_root(c, tolerance=1e-2)[1].tolist() == [1.0, 0.0]
