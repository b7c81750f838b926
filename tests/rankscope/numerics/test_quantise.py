"""Rounding to whole numbers: the bound of its error, what it leaves alone, and what it refuses."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import DataError
from rankscope.numerics.quantise import LARGEST, Quantised, quantise


def draw(rows: int, columns: int, seed: int, magnitude: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    each = 10.0 ** torch.empty(rows, 1).uniform_(-3, 3, generator=generator)
    return (torch.randn(rows, columns, generator=generator) * each * magnitude).to(dtype)


matrices = st.builds(
    draw,
    st.integers(1, 9),
    st.integers(1, 40),
    st.integers(0, 10**6),
    st.sampled_from([1e-30, 1e-4, 1.0, 1e4, 1e30]),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)


@settings(deadline=None)
@given(matrices)
def test_no_entry_moves_by_more_than_half_a_step(matrix: torch.Tensor) -> None:
    rounded = quantise(matrix)
    error = (matrix.double() - rounded.dense(torch.float64)).abs()
    assert bool((error <= rounded.scale.double()[:, None] / 2).all())
    assert rounded.values.dtype == torch.int8
    assert int(rounded.values.abs().max()) <= LARGEST


@settings(deadline=None)
@given(matrices)
def test_steps_are_as_small_as_the_largest_entry_allows(matrix: torch.Tensor) -> None:
    rounded = quantise(matrix)
    assert (rounded.values.abs().amax(dim=1) == LARGEST).all()
    step = matrix.double().abs().amax(dim=1) / LARGEST
    torch.testing.assert_close(rounded.scale.double(), step, rtol=2.0**-8, atol=0.0)


@settings(deadline=None)
@given(matrices)
def test_what_is_rounded_stays_bit_for_bit(matrix: torch.Tensor) -> None:
    once = quantise(matrix)
    for dtype in (torch.float32, torch.float64):
        twice = quantise(once.dense(dtype))
        assert torch.equal(once.values, twice.values)
        assert torch.equal(once.scale, twice.scale)


@settings(deadline=None)
@given(matrices)
def test_in_float32_the_product_with_the_scale_is_exact(matrix: torch.Tensor) -> None:
    rounded = quantise(matrix)
    assert torch.equal(rounded.dense().double(), rounded.dense(torch.float64))


@pytest.mark.parametrize("smallest", [0.0, 1e-45, 1e-39])
def test_rows_of_next_to_nothing(smallest: float) -> None:
    rows = torch.tensor([[0.0, smallest], [3.0, 1.0]])
    rounded = quantise(rows)
    assert bool(((rows - rounded.dense()).abs() <= rounded.scale.float()[:, None] / 2).all())
    assert bool((rounded.scale > 0).all())
    again = quantise(rounded.dense())
    assert torch.equal(again.values, rounded.values)
    assert torch.equal(again.scale, rounded.scale)


def test_zero_rows_are_zero_and_empty_rows_are_rows() -> None:
    assert torch.equal(quantise(torch.zeros(2, 3)).dense(), torch.zeros(2, 3))
    assert quantise(torch.zeros(2, 0)).dense().shape == (2, 0)


def test_rows_do_not_know_of_each_other() -> None:
    matrix = draw(6, 20, 0, 1.0)
    whole = quantise(matrix)
    for row in range(6):
        alone = quantise(matrix[row : row + 1])
        assert torch.equal(whole.values[row : row + 1], alone.values)
        assert torch.equal(whole.scale[row : row + 1], alone.scale)


def test_it_is_the_loop() -> None:
    matrix = draw(5, 12, 3, 1.0)
    rounded = quantise(matrix)
    for i, row in enumerate(matrix.tolist()):
        scale = float(torch.tensor(max(abs(w) for w in row) / 127).to(torch.bfloat16))
        assert float(rounded.scale[i]) == scale
        assert rounded.values[i].tolist() == [round(w / scale) for w in row]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_row_that_is_not_finite_is_named(bad: float) -> None:
    matrix = torch.ones(4, 3)
    matrix[2, 1] = bad
    with pytest.raises(DataError, match=r"^row 2 of a\.q\.weight holds NaN, Inf [^\n]*$"):
        quantise(matrix, "a.q.weight")


def test_a_row_beyond_every_scale_is_named() -> None:
    with pytest.raises(DataError, match="row 1 of matrix"):
        quantise(torch.tensor([[1.0], [1e300]], dtype=torch.float64))


def test_dense_is_scale_times_values() -> None:
    stored = Quantised(torch.tensor([[2, -3]], dtype=torch.int8), torch.tensor([0.5], dtype=torch.bfloat16))
    assert stored.dense().tolist() == [[1.0, -1.5]]
