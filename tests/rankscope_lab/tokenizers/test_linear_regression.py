"""Descent against finite differences, least squares and the bound on η."""

import math

import numpy as np
import pytest
import torch

from rankscope.errors import DataError, OptionError
from rankscope.io import codec
from rankscope_lab.tokenizers.linear_regression import (
    SgdSettings,
    fit_linear,
    gradients,
    least_squares,
    mean_squared_error,
    stability_bound,
)


@pytest.fixture
def rows() -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 4)) * [1.0, 1.5, 0.7, 1.0] + [0.0, 0.4, -0.5, 0.2]
    y = x @ [1.0, -2.0, 0.5, 3.0] + 0.7 + 0.1 * rng.standard_normal(200)
    return torch.from_numpy(x), torch.from_numpy(y)


def test_gradients_are_finite_differences(rows: tuple[torch.Tensor, torch.Tensor]) -> None:
    x, y = rows
    theta, bias, h = torch.randn(4, dtype=torch.float64), torch.tensor(0.3, dtype=torch.float64), 1e-6
    slope, shift = gradients(x, y, theta, bias)
    for i, unit in enumerate(torch.eye(4, dtype=torch.float64)):
        up, down = (mean_squared_error(x, y, theta + s * h * unit, bias) for s in (1, -1))
        assert float(slope[i]) == pytest.approx(float(up - down) / (2 * h), rel=1e-6)
    up, down = (mean_squared_error(x, y, theta, bias + s * h) for s in (1, -1))
    assert float(shift) == pytest.approx(float(up - down) / (2 * h), rel=1e-6)


def test_descent_ends_at_least_squares(rows: tuple[torch.Tensor, torch.Tensor]) -> None:
    x, y = rows
    want = np.linalg.lstsq(np.column_stack([x, np.ones(200)]), y, rcond=None)[0]
    fit = fit_linear(x, y, SgdSettings(batch_size=None, epochs=400))
    np.testing.assert_allclose([*fit.theta, fit.bias], want, atol=1e-6)
    theta, bias = least_squares(x, y)
    np.testing.assert_allclose([*theta, bias], want, atol=1e-10)
    assert fit.losses[-1] == pytest.approx(fit.least)


def test_batches_come_near_it_from_any_start(rows: tuple[torch.Tensor, torch.Tensor]) -> None:
    x, y = rows
    for seed in range(3):
        fit = fit_linear(x, y, SgdSettings(learning_rate=0.02, batch_size=32, epochs=60, seed=seed))
        assert not fit.diverged
        assert fit.losses[-1] < 1.2 * fit.least
        assert len(fit.losses) == 61


def test_the_loss_falls_below_the_bound_and_blows_up_above(rows: tuple[torch.Tensor, torch.Tensor]) -> None:
    x, y = rows
    bound = stability_bound(x)
    wide = np.column_stack([x, np.ones(200)])
    assert bound == pytest.approx(1 / np.linalg.norm(wide, 2) ** 2 * 200)
    calm = fit_linear(x, y, SgdSettings(learning_rate=0.99 * bound, batch_size=None, epochs=200))
    assert all(later <= earlier for earlier, later in zip(calm.losses, calm.losses[1:], strict=False))
    wild = fit_linear(x, y, SgdSettings(learning_rate=1.01 * bound, batch_size=None, epochs=3000))
    assert wild.diverged
    assert len(wild.losses) < 3001
    assert codec.plain(wild)["diverged"] is True


def test_the_printed_ascent_diverges(rows: tuple[torch.Tensor, torch.Tensor]) -> None:
    x, y = rows
    theta, bias = torch.rand(4, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64)
    first = float(mean_squared_error(x, y, theta, bias))
    for _ in range(300):
        slope, shift = gradients(x, y, theta, bias)
        theta, bias = theta + 0.01 * slope, bias + 0.01 * shift
    assert float(mean_squared_error(x, y, theta, bias)) > 1e6 * first


def test_where_it_starts(rows: tuple[torch.Tensor, torch.Tensor]) -> None:
    x, y = rows
    tiny = fit_linear(x, y, SgdSettings(learning_rate=1e-300, epochs=1))
    assert bool(((tiny.theta >= 0) & (tiny.theta < 1)).all())
    assert tiny.bias == pytest.approx(0, abs=1e-200)


def test_bad_input(rows: tuple[torch.Tensor, torch.Tensor]) -> None:
    x, y = rows
    with pytest.raises(OptionError, match=r"learning_rate must be above 0, got -0\.1"):
        SgdSettings(learning_rate=-0.1)
    with pytest.raises(OptionError, match="at least 1"):
        SgdSettings(batch_size=0)
    for bad in (x[:0], x * math.nan):
        with pytest.raises(DataError, match="needs finite rows"):
            fit_linear(bad, y[: len(bad)])
