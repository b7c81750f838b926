from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from rankscope.errors import DataError, OptionError
from rankscope.series.signals import SIGNALS, corpus


@pytest.mark.parametrize("kind", SIGNALS)
def test_shape_dtype_and_seed(kind: str) -> None:
    first, again = corpus(kind, n=5, length=33, seed=7), corpus(kind, n=5, length=33, seed=7)
    assert first.shape == (5, 33)
    assert first.dtype == torch.float32
    assert torch.equal(first, again)
    assert torch.isfinite(first).all()
    if kind != "constant":
        assert not torch.equal(first, corpus(kind, n=5, length=33, seed=8))


def test_constant_is_the_zero_signal() -> None:
    assert torch.equal(corpus("constant", n=2, length=9), torch.zeros(2, 9))


def test_a_sampled_sinusoid_obeys_its_recurrence() -> None:
    x = corpus("sine", n=6, length=64, seed=1).double().numpy()
    inner, outer = x[:, 1:-1], x[:, 2:] + x[:, :-2]
    two_cos = (inner * outer).sum(1, keepdims=True) / (inner**2).sum(1, keepdims=True)
    np.testing.assert_allclose(outer, two_cos * inner, atol=1e-5)
    assert np.all(two_cos >= 2 * np.cos(2 * np.pi / 4) - 1e-5)  # periods of at least four steps


def test_an_exponential_has_a_constant_ratio() -> None:
    x = corpus("exponential", n=6, length=32, seed=1).double().numpy()
    ratio = x[:, 1:] / x[:, :-1]
    np.testing.assert_allclose(ratio, np.broadcast_to(ratio[:, :1], ratio.shape), rtol=1e-5)
    assert (ratio[:, 0] > 1).any()
    assert (ratio[:, 0] < 1).any()


def test_noise_is_white() -> None:
    x = corpus("noise", n=64, length=256, seed=3).double()
    assert abs(float(x.mean())) < 0.02
    assert abs(float(x.std()) - 1) < 0.02
    assert abs(float((x[:, 1:] * x[:, :-1]).mean())) < 0.02


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("kind", SIGNALS)
def test_tiny_lengths(kind: str, length: int) -> None:
    assert torch.isfinite(corpus(kind, n=1, length=length)).all()


def test_bad_options_name_the_choices() -> None:
    with pytest.raises(OptionError, match="did you mean 'sine'"):
        corpus("sin", n=1, length=4)
    with pytest.raises(OptionError, match="n 0 is not usable"):
        corpus("sine", n=0, length=4)
    with pytest.raises(OptionError, match="length -4 is not usable"):
        corpus("sine", n=1, length=-4)
    with pytest.raises(OptionError, match="belongs to the signal 'user'"):
        corpus("sine", n=1, length=4, file="a.csv")
    with pytest.raises(DataError, match="needs a file"):
        corpus("user", n=1, length=4)


def test_mixed_takes_the_three_kinds_in_turn() -> None:
    x = corpus("mixed", n=8, length=64, seed=3).double()
    sine, exponential, noise = x[0::3], x[1::3], x[2::3]
    assert float(sine.abs().max()) <= 1
    ratio = exponential[:, 1:] / exponential[:, :-1]
    np.testing.assert_allclose(ratio, ratio[:, :1].expand_as(ratio), rtol=1e-5)
    inner, outer = sine[:, 1:-1], sine[:, 2:] + sine[:, :-2]
    two_cos = (inner * outer).sum(1, keepdim=True) / (inner**2).sum(1, keepdim=True)
    np.testing.assert_allclose(outer, two_cos * inner, atol=1e-5)
    assert (noise.diff().sign().diff() != 0).double().mean() > 0.5  # noise turns at two of three values


def test_user_corpus_cuts_windows(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    pd.DataFrame({"a": np.arange(50.0), "b": np.arange(100.0, 150.0)}).to_csv(path, index=False)
    x = corpus("user", n=40, length=8, seed=2, file=path).numpy()
    np.testing.assert_array_equal(np.diff(x, axis=1), 1)
    assert (x < 50).all(axis=1).any()
    assert (x >= 100).all(axis=1).any()
    with pytest.raises(DataError, match="longest series has 50 values but length is 51"):
        corpus("user", n=1, length=51, file=path)


def test_windows_without_an_observed_value_are_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    values = np.full(40, np.nan)
    values[10:12] = 1.0
    pd.DataFrame({"a": values}).to_csv(path, index=False)
    x = corpus("user", n=8, length=6, file=path).numpy()
    assert (~np.isnan(x)).any(axis=1).all()
