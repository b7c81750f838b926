"""Singular values by every method against LAPACK in float64, and the stated limit of the Gram route."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from torch import Tensor

from rankscope.errors import OptionError
from rankscope.numerics import FactoredMatrix, choose_method, eps_ranks, per_head, singular_values
from rankscope.numerics.factored import joined_heads
from rankscope.numerics.parallel import parallel_map
from rankscope.numerics.spectrum import GRAM_SMALLEST_EPS, Workspace, gram, per_head_of_widths


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def with_spectrum(sigma: Tensor, rows: int, columns: int) -> Tensor:
    u = torch.linalg.qr(random(rows, len(sigma), seed=1)).Q
    v = torch.linalg.qr(random(columns, len(sigma), seed=2)).Q
    return (u * sigma) @ v.T


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 40), columns=st.integers(1, 40), seed=st.integers(0, 999), power=st.integers(-120, 120))
def test_both_methods_equal_lapack_at_every_scale_and_transposed(
    rows: int, columns: int, seed: int, power: int
) -> None:
    m = random(rows, columns, seed=seed) * 10.0**power
    exact = torch.linalg.svdvals(m)
    for method in ("svd", "gram"):
        for w in (m, m.T):
            found = singular_values(w, method=method)
            torch.testing.assert_close(found, exact, rtol=0, atol=1e-7 * float(exact[0]))


@pytest.mark.parametrize("method", ["svd", "gram"])
def test_batches_equal_a_loop(method: str) -> None:
    m = random(2, 3, 5, 7)
    found = singular_values(m, method=method)
    assert found.shape == (2, 3, 5)
    for i in range(2):
        for j in range(3):
            torch.testing.assert_close(found[i, j], torch.linalg.svdvals(m[i, j]))


def test_the_limit_of_the_gram_route() -> None:
    """Down to its limit the Gram route counts what was prescribed; a thousand times below it, it does not."""
    sigma = torch.logspace(0, -12, 49, dtype=torch.float64)
    m = with_spectrum(sigma, 60, 50)
    exact, found = singular_values(m, method="svd"), singular_values(m, method="gram")
    levels = [eps * 1.3 for eps in (1e-2, 1e-3, 1e-4, 1e-5, GRAM_SMALLEST_EPS)]
    prescribed = [int((sigma > eps).sum()) for eps in levels]
    assert eps_ranks(found, levels).tolist() == eps_ranks(exact, levels).tolist() == prescribed
    below = GRAM_SMALLEST_EPS * 1e-3 * 1.3
    assert int(eps_ranks(exact, [below])) == int((sigma > below).sum())
    assert int(eps_ranks(found, [below])) != int((sigma > below).sum())


def test_float32_input_is_as_good_by_gram_as_by_svdvals() -> None:
    sigma = torch.logspace(0, -9, 100, dtype=torch.float64)
    m = with_spectrum(sigma, 100, 130).to(torch.float32)
    exact = torch.linalg.svdvals(m.double())
    by_gram = (singular_values(m, method="gram").double() - exact).abs().max()
    by_svd = (torch.linalg.svdvals(m).double() - exact).abs().max()
    assert float(by_gram) <= max(1e-7, float(by_svd))


def test_the_method_follows_precision_and_the_smallest_eps() -> None:
    assert choose_method((768, 768), None, torch.float32) == "gram"
    assert choose_method((768, 768), GRAM_SMALLEST_EPS, torch.float64) == "gram"
    assert choose_method((768, 768), None, torch.float64) == "svd"
    assert choose_method((768, 768), GRAM_SMALLEST_EPS / 2, torch.float32) == "svd"
    assert choose_method((768, 768), 0.0, torch.float32) == "svd"
    assert choose_method((1, 768), 0.1, torch.float32) == "svd"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_upcast_before_it_is_decomposed(dtype: torch.dtype) -> None:
    m = random(20, 30).to(dtype)
    found = singular_values(m)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), torch.linalg.svdvals(m.double()), rtol=1e-5, atol=1e-6)
    assert singular_values(m, dtype=torch.float64).dtype == torch.float64


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_gram_in_chunks_and_strips_equals_the_product(side: int, dtype: torch.dtype) -> None:
    workspace = Workspace()
    for rows, columns in ((250, 9000 if side == 0 else 20), (9000 if side == 1 else 20, 210)):
        m = random(rows, columns, dtype=dtype)
        wide = m.double() if side == 0 else m.double().T
        if wide.shape[0] <= 300:
            torch.testing.assert_close(gram(m, side, workspace), wide @ wide.T)
            narrow = gram(m, side, workspace, torch.float32)
            assert narrow.dtype == torch.float32
            torch.testing.assert_close(narrow.double(), wide @ wide.T, rtol=1e-5, atol=1e-3)


def test_heads_are_slices_of_rows_or_columns() -> None:
    m = random(6, 4)
    assert torch.equal(per_head(m, 3)[1], m[2:4])
    assert torch.equal(per_head(m, 2, head_axis=1)[1], m[:, 2:])
    with pytest.raises(OptionError, match="heads"):
        per_head(m, 4)


@settings(max_examples=20, deadline=None)
@given(widths=st.lists(st.integers(1, 5), min_size=1, max_size=4), axis=st.integers(0, 1), seed=st.integers(0, 99))
def test_heads_of_any_widths_have_the_singular_values_of_their_slices(widths: list[int], axis: int, seed: int) -> None:
    m = random(sum(widths), 7, seed=seed)
    m = m if axis == 0 else m.T.contiguous()
    w = FactoredMatrix(m if axis == 0 else torch.eye(7, dtype=m.dtype), torch.eye(7, dtype=m.dtype) if axis == 0 else m)
    slices, factored = per_head_of_widths(m, widths, axis), w.per_head_singular_values(widths, axis)
    assert len(slices) == len(factored) == len(widths)
    for part, padded, values in zip(m.split(widths, dim=axis), slices, factored, strict=True):
        exact = torch.linalg.svdvals(part)
        for found in (torch.linalg.svdvals(padded), values):
            torch.testing.assert_close(found[: len(exact)], exact)
            assert not found[len(exact) :].gt(1e-12).any()
    with pytest.raises(OptionError, match="does not split into heads of"):
        per_head_of_widths(m, [*widths, 1], axis)
    with pytest.raises(OptionError, match="does not split into heads of"):
        w.per_head_singular_values([*widths, 1], axis)


@pytest.mark.parametrize("axis", [0, 1])
def test_factors_of_heads_joined_are_the_matrix_of_the_products(axis: int) -> None:
    """Eq. 21 with a loop: heads below each other for q, k and v, side by side for o."""
    heads, rank, d_head, d = 3, 2, 4, 5
    ups = [random(d_head if axis == 0 else d, rank, seed=i) for i in range(heads)]
    downs = [random(rank, d if axis == 0 else d_head, seed=9 + i) for i in range(heads)]
    w = joined_heads(torch.cat(ups, dim=axis), torch.cat(downs), heads, axis)
    expected = torch.cat([up @ down for up, down in zip(ups, downs, strict=True)], dim=axis)
    torch.testing.assert_close(w.dense(), expected)
    torch.testing.assert_close(w.singular_values()[:5], torch.linalg.svdvals(expected)[:5])


@settings(max_examples=20, deadline=None)
@given(rank=st.integers(1, 12), d_out=st.integers(1, 15), d_in=st.integers(1, 15), seed=st.integers(0, 99))
def test_factored_spectrum_equals_that_of_the_product(rank: int, d_out: int, d_in: int, seed: int) -> None:
    w = FactoredMatrix(random(d_out, rank, seed=seed), random(rank, d_in, seed=seed + 1))
    exact = torch.linalg.svdvals(w.up @ w.down)
    found = w.singular_values()
    torch.testing.assert_close(found, exact[: len(found)])
    assert bool((exact[len(found) :] < 1e-10).all())
    assert w.parameters == rank * (d_out + d_in)


@pytest.mark.parametrize("head_axis", [0, 1])
def test_factored_heads_equal_slices_of_the_product(head_axis: int) -> None:
    w = FactoredMatrix(random(12, 5), random(5, 8, seed=1))
    dense = w.dense()
    found = w.per_head_singular_values([w.shape[head_axis] // 4] * 4, head_axis)
    for values, part in zip(found, dense.chunk(4, dim=head_axis), strict=True):
        exact = torch.linalg.svdvals(part)
        torch.testing.assert_close(values[: len(exact)], exact[: len(values)])


def test_factors_that_do_not_multiply_are_refused() -> None:
    with pytest.raises((OptionError, TypeCheckError), match="down"):
        FactoredMatrix(torch.zeros(3, 2), torch.zeros(3, 2))


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_spectra_keep_order_and_read_lazily(workers: int) -> None:
    read: list[int] = []

    def matrices() -> object:
        for i in range(12):
            read.append(i)
            yield random(6 + i, 9, seed=i)

    found = parallel_map(singular_values, matrices(), workers)
    first = next(found)
    assert len(read) <= workers + 2
    for i, values in enumerate([first, *found]):
        torch.testing.assert_close(values, torch.linalg.svdvals(random(6 + i, 9, seed=i)))


def test_an_error_in_a_worker_is_raised_and_threads_are_restored() -> None:
    before = torch.get_num_threads()
    with pytest.raises(OptionError, match="NaN"):
        list(parallel_map(singular_values, [torch.eye(2), torch.full((2, 2), float("nan"))], 2))
    assert torch.get_num_threads() == before
    with pytest.raises(OptionError, match="workers"):
        parallel_map(abs, [1], workers=0)


@pytest.mark.parametrize(
    ("m", "options", "word"),
    [
        (torch.tensor([[1.0, float("inf")]]), {}, "Inf"),
        (torch.eye(2), {"method": "grams"}, "did you mean 'gram'"),
        (torch.eye(2), {"dtype": torch.float16}, "dtype"),
    ],
)
def test_bad_input_is_named(m: Tensor, options: dict[str, object], word: str) -> None:
    with pytest.raises(OptionError, match=word):
        singular_values(m, **options)


def test_a_vector_is_no_matrix() -> None:
    # the type checker of the test run may speak before the function does
    with pytest.raises((OptionError, TypeCheckError)):
        singular_values(torch.zeros(3))


def test_empty_and_zero_matrices() -> None:
    assert singular_values(torch.zeros(0, 3)).shape == (0,)
    assert singular_values(torch.zeros(4, 3)).tolist() == [0.0, 0.0, 0.0]
