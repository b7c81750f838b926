"""Laws and slow loops for ranks and sizes."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from rankscope.errors import OptionError
from rankscope.numerics import (
    effective_rank,
    eps_rank,
    eps_ranks,
    factored_parameters,
    factoring_pays,
    relative_spectrum,
    size_ratio,
    stable_rank,
    validate_eps,
)

values = st.lists(st.floats(0.0, 1e6), min_size=1, max_size=20)
levels = st.lists(st.floats(0.0, 0.999), min_size=1, max_size=5)


@given(sigma=values, eps=levels)
def test_ranks_equal_a_plain_count_and_shrink_with_eps(sigma: list[float], eps: list[float]) -> None:
    s = torch.tensor(sigma, dtype=torch.float64)
    found = eps_ranks(s, eps).tolist()
    assert found == [sum(value > e * max(sigma) for value in sigma) for e in eps]
    ordered = eps_ranks(s, sorted(eps)).tolist()
    assert ordered == sorted(ordered, reverse=True)


@given(sigma=values, power=st.integers(-20, 20), eps=st.floats(0.0, 0.999))
def test_ranks_do_not_depend_on_scale(sigma: list[float], power: int, eps: float) -> None:
    s = torch.tensor([value if value > 1e-100 else 0.0 for value in sigma], dtype=torch.float64)
    assert int(eps_rank(s, eps)) == int(eps_rank(s * 2.0**power, eps))
    assert float(effective_rank(s)) == pytest.approx(float(effective_rank(s * 2.0**power)))


def test_the_inequality_is_strict() -> None:
    s = torch.tensor([4.0, 2.0, 1.0])
    assert eps_ranks(s, [0.5, 0.25, 0.0]).tolist() == [1, 2, 3]


@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_zero_matrix_and_empty_spectrum_have_rank_zero(eps: float) -> None:
    zero = torch.zeros(3, 4)
    assert eps_rank(zero, eps).tolist() == [0, 0, 0]
    assert int(eps_rank(torch.zeros(0), eps)) == 0
    for measure in (effective_rank, stable_rank):
        assert measure(zero).tolist() == [0.0, 0.0, 0.0]
    assert not relative_spectrum(zero).any()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_spectrum_that_is_not_finite_has_no_rank(value: float) -> None:
    sigma = torch.tensor([[2.0, 1.0], [1.0, value]])
    with pytest.raises(OptionError, match="NaN or infinite"):
        eps_rank(sigma, 0.5)
    for measure in (effective_rank, stable_rank):
        assert measure(sigma).isnan().tolist() == [False, True]


@given(sigma=values)
def test_effective_and_stable_rank_against_loops(sigma: list[float]) -> None:
    assume(max(sigma) >= 1e-3)
    relative = [value / max(sigma) for value in sigma]
    energy = sum(r * r for r in relative)
    entropy = -sum(r * r / energy * math.log(r * r / energy) for r in relative if r * r > 0)
    s = torch.tensor(sigma, dtype=torch.float64)
    assert float(effective_rank(s)) == pytest.approx(math.exp(entropy), rel=1e-9)
    assert float(stable_rank(s)) == pytest.approx(energy, rel=1e-9)
    assert 1.0 <= float(stable_rank(s)) <= float(effective_rank(s)) ** 2 + len(sigma)


def test_equal_values_have_full_effective_rank_in_every_batch() -> None:
    torch.testing.assert_close(effective_rank(torch.ones(2, 3, 7)), torch.full((2, 3), 7.0, dtype=torch.float64))


@pytest.mark.parametrize("eps", [-0.1, 1.0, 2.0, float("nan"), float("inf")])
def test_eps_outside_its_range_is_named(eps: float) -> None:
    with pytest.raises(OptionError, match="eps"):
        validate_eps(eps)
    with pytest.raises(OptionError, match="eps"):
        eps_rank(torch.ones(2), eps)


@given(m=st.integers(1, 50), n=st.integers(1, 50), rank=st.integers(0, 60))
def test_factored_parameters_never_exceed_dense(m: int, n: int, rank: int) -> None:
    stored = factored_parameters((m, n), rank)
    assert stored == min(m * n, rank * (m + n))
    assert factoring_pays((m, n), rank) == (stored < m * n)
    assert size_ratio([(m, n)], [rank]) == stored / (m * n)


def test_size_ratio_sums_before_dividing_and_checks_lengths() -> None:
    assert size_ratio([(10, 10), (100, 100)], [1, 100]) == (20 + 10_000) / 10_100
    assert size_ratio([], []) == 1.0
    with pytest.raises(ValueError, match="argument"):
        size_ratio([(1, 1)], [])
    with pytest.raises(OptionError, match="rank"):
        factored_parameters((3, 3), -1)
