"""Sums over batches: against a loop over every position, padding left out, and no memory that grows."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.compress.calibration import InputMoments, moments_of
from rankscope.compress.calibration.moments import PARTS, WIDE, MomentSink, from_tensors, to_tensors
from rankscope.errors import DataError


def batch(seed: int, series: int = 4, tokens: int = 6, d: int = 3) -> Tensor:
    return torch.randn(series, tokens, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def mask(seed: int, series: int = 4, tokens: int = 6) -> Tensor:
    return torch.rand(series, tokens, generator=torch.Generator().manual_seed(seed)) < 0.6


def measured(x: Tensor, real: Tensor | None = None) -> InputMoments:
    found = moments_of(x, real)
    assert found is not None
    return found


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), padded=st.booleans())
def test_sums_equal_a_loop_over_positions(seed: int, padded: bool) -> None:
    x = batch(seed)
    real = mask(seed) if padded else torch.ones(4, 6, dtype=torch.bool)
    real[0, 0] = True
    found = measured(x, real if padded else None)
    tokens, second, within, absolute, total = 0, torch.zeros(3, 3), torch.zeros(3, 3), torch.zeros(3), torch.zeros(3)
    second, within, absolute, total = (t.double() for t in (second, within, absolute, total))
    for row, kept in zip(x, real, strict=True):
        positions = [position for position, keep in zip(row, kept, strict=True) if keep]
        for position in positions:
            mean = sum(positions) / len(positions)
            tokens += 1
            second += torch.outer(position, position)
            within += torch.outer(position - mean, position - mean)
            absolute += position.abs()
            total += position
    assert (found.tokens, found.sequences) == (tokens, sum(bool(kept.any()) for kept in real))
    close = torch.testing.assert_close
    close(found.second, second / tokens)
    close(found.within, within / tokens, rtol=1e-9, atol=1e-12)
    close(found.absolute, absolute / tokens)
    close(found.total, total)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), cut=st.integers(1, 3))
def test_batches_add_up(seed: int, cut: int) -> None:
    x, real = batch(seed), mask(seed)
    real[:, 0] = True
    whole, parts = measured(x, real), measured(x[:cut], real[:cut]) + measured(x[cut:], real[cut:])
    assert (whole.tokens, whole.sequences) == (parts.tokens, parts.sequences)
    for name in ("total", "inside", "outer", "loudness"):
        torch.testing.assert_close(getattr(parts, name), getattr(whole, name), rtol=1e-10, atol=1e-12)


def test_weights_are_positions_seen_so_often() -> None:
    x = batch(10, series=2, tokens=3)
    weighted = moments_of(x, None, torch.tensor([[1.0, 2.0, 3.0], [1.0, 1.0, 2.0]]))
    repeated = torch.stack([x[0, [0, 1, 1, 2, 2, 2]], torch.cat([x[1, [0, 1, 2, 2]], torch.zeros(2, 3)])])
    seen = measured(repeated, torch.tensor([[True] * 6, [True] * 4 + [False] * 2]))
    assert weighted is not None
    assert (weighted.tokens, weighted.weight, seen.weight) == (6, 10.0, 10.0)
    for name in ("second", "within", "mean", "absolute"):
        torch.testing.assert_close(getattr(weighted, name), getattr(seen, name))


def test_memory_does_not_grow_with_the_number_of_series() -> None:
    sink = MomentSink()
    batches = [batch(seed, series=3 + seed) for seed in range(5)]
    for one in batches:
        sink.add(one, None)
        assert sink.moments is not None
        assert sum(getattr(sink.moments, name).numel() for name in PARTS) <= 3 * 3 + 2 * 3 + 2 * 3 * 3
    assert sink.moments.sequences == 3 + 4 + 5 + 6 + 7
    rows = torch.cat([one.flatten(0, 1) for one in batches])
    torch.testing.assert_close(sink.moments.outer, rows.mT @ rows)


def test_wide_sums_are_float32_and_second_moments_float64() -> None:
    x = batch(8, series=3, tokens=5, d=WIDE)
    found = measured(x.float()) + measured(x.float() + 1)
    assert (found.inside.dtype, found.second.dtype) == (torch.float32, torch.float64)
    rows = torch.cat([x, x + 1]).flatten(0, 1)
    torch.testing.assert_close(found.second, rows.mT @ rows / 30, rtol=1e-4, atol=1e-4)


def test_files_with_the_second_moment_of_the_means_are_read() -> None:
    found = measured(batch(9))
    tensors = to_tensors(found)
    means = tensors.pop("means")
    del tensors["weight"]
    again = from_tensors({**tensors, "between": means.mT @ means})
    torch.testing.assert_close(again.second, found.second)
    torch.testing.assert_close(again.within, found.within)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_sums_are_float64_whatever_came(dtype: torch.dtype) -> None:
    x = batch(1).to(dtype)
    found, exact = measured(x), measured(x.double())
    for name in PARTS:
        assert getattr(found, name).dtype == torch.float64
        torch.testing.assert_close(getattr(found, name), getattr(exact, name), rtol=1e-4, atol=1e-4)


def test_one_token_has_nothing_within() -> None:
    x = (batch(2, series=50, tokens=1) * 100 + 1000).float()
    assert not measured(x).within.any()
    alone = torch.zeros(50, 6, dtype=torch.bool)
    alone[:, 3] = True
    assert not measured((batch(2, series=50) + 1000).float(), alone).within.any()


def test_covariance_within_survives_a_large_shared_part_in_float32() -> None:
    """Σ x xᵀ − Σ n x̄ x̄ᵀ would lose it: 1e6 beside 1, in float32."""
    x = (batch(3, series=30, tokens=40) + 1000 * batch(4, series=30, tokens=1)).float()
    found, exact = measured(x), measured(x.double())
    torch.testing.assert_close(found.within, exact.within, rtol=1e-3, atol=1e-3)
    assert float(torch.linalg.eigvalsh(found.within)[0]) > 0.5


def test_padding_may_hold_anything() -> None:
    x, real = batch(5), mask(5)
    real[0, 0] = True
    spoilt = x.masked_fill(~real[..., None], torch.nan)
    assert torch.equal(measured(spoilt, real).outer, measured(x, real).outer)
    spoilt = x.masked_fill(~real[..., None], torch.inf)
    assert torch.equal(measured(spoilt, real).within, measured(x, real).within)


def test_nothing_real_is_nothing() -> None:
    assert moments_of(batch(6), torch.zeros(4, 6, dtype=torch.bool)) is None
    sink = MomentSink()
    sink.add(batch(6), torch.zeros(4, 6, dtype=torch.bool))
    assert sink.moments is None


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_real_position_that_is_not_finite_is_refused(bad: float) -> None:
    x = batch(7)
    x[1, 2, 0] = bad
    with pytest.raises(DataError, match="NaN or Inf during calibration"):
        moments_of(x)


def test_sums_that_overflow_are_refused() -> None:
    with pytest.raises(DataError, match="NaN or Inf"):
        moments_of(batch(8).float() * 1e30)


def test_to_tensors_and_back() -> None:
    found = measured(batch(9))
    again = from_tensors(to_tensors(found))
    assert (again.tokens, again.sequences) == (found.tokens, found.sequences)
    assert all(torch.equal(getattr(again, name), getattr(found, name)) for name in PARTS)
    tensors = to_tensors(found)
    with pytest.raises(DataError, match="NaN or Inf"):
        from_tensors({**tensors, "inside": tensors["inside"] * torch.nan})
    with pytest.raises(DataError, match="no positions"):
        from_tensors({**tensors, "counts": torch.tensor([0, 0])})


def test_damaged_tensors_are_refused() -> None:
    tensors = to_tensors(measured(batch(9)))
    spoilt = tensors["inside"].clone()
    spoilt[0, 1] = torch.nan
    with pytest.raises(DataError, match="NaN or Inf"):
        from_tensors({**tensors, "inside": spoilt})
    with pytest.raises(ValueError, match="not a matrix"):
        from_tensors({**tensors, "inside": spoilt[1]})
