"""The forecaster: both ways of writing, and scores by a slow loop."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from rankscope.errors import DataError, OptionError
from rankscope.io import codec
from rankscope_lab.data.windows import ForecastData, Windows, seasonal_naive
from rankscope_lab.tokenizers.forecasting import (
    MODES,
    ONE_SHOT,
    STEPWISE,
    Forecaster,
    ForecastSettings,
    errors,
    train_forecaster,
)
from rankscope_lab.tokenizers.parts import ScaledParts
from rankscope_lab.tokenizers.transformer import Shape

SETTINGS = ForecastSettings(
    lookback=48,
    horizon=8,
    batch_size=32,
    learning_rate=3e-3,
    epochs=2,
    steps_per_epoch=40,
    shape=Shape(16, 2, 32, 1, 0.0),
)


@pytest.fixture(scope="module")
def data(small_parts: ScaledParts) -> ForecastData:
    windows = {name: Windows(getattr(small_parts, name), 48, 8, name) for name in ("train", "validation", "test")}
    return ForecastData("waves", ("a", "b"), mean=np.zeros(2), std=np.ones(2), season=24, **windows)


@pytest.mark.parametrize("mode", MODES)
def test_training_beats_the_mean(data: ForecastData, mode: str) -> None:
    result = train_forecaster(data, dataclasses.replace(SETTINGS, mode=mode))
    assert not result.diverged
    assert result.daily.mse < 0.5
    assert result.points[-1][2] < result.points[0][1]
    assert (result.every is None) == (mode == STEPWISE)
    assert result.every_naive.windows == len(data.test) == 192 - 48 - 8 + 1
    assert result.daily.windows == len(range(0, len(data.test), 24))
    document: dict[str, Any] = codec.plain(result)
    assert document["daily"]["mse"] == result.daily.mse


def test_scores_by_a_slow_loop(data: ForecastData, small_parts: ScaledParts) -> None:
    got = errors(data.test, lambda past: seasonal_naive(past, 8, 24), apart=5)
    values = small_parts.test.numpy().astype(np.float64)
    squared, absolute, count = 0.0, 0.0, 0
    for start in range(0, len(values) - 55, 5):
        for step in range(8):
            now = start + 48 + step
            off = values[now - 24] - values[now]
            squared, absolute, count = squared + (off**2).sum(), absolute + np.abs(off).sum(), count + 2
    assert got.mse == pytest.approx(squared / count, rel=1e-5)
    assert got.mae == pytest.approx(absolute / count, rel=1e-5)
    assert got.windows * 8 * 2 == count


def test_step_by_step_uses_its_own_forecasts() -> None:
    torch.manual_seed(0)
    model = Forecaster(dataclasses.replace(SETTINGS, mode=STEPWISE), 2).eval()
    past = torch.randn(3, 48, 2)
    with torch.no_grad():
        forecast = model.forecast(past)
        # fed with its own forecast, teacher forcing says the same
        torch.testing.assert_close(model(past, forecast), forecast)
        assert not torch.allclose(model(past, torch.randn(3, 8, 2)), forecast)


def test_one_shot_sees_the_past_alone() -> None:
    torch.manual_seed(0)
    model = Forecaster(dataclasses.replace(SETTINGS, mode=ONE_SHOT), 2).eval()
    past = torch.randn(3, 48, 2)
    with torch.no_grad():
        forecast = model.forecast(past)
        for future in (torch.randn(3, 8, 2), torch.zeros(3, 8, 2)):
            torch.testing.assert_close(model(past, future), forecast)
        past[:, 0] += 1
        assert not torch.allclose(model.forecast(past), forecast)
    queries = dict(model.named_parameters())["transformer.target.weight"]
    assert tuple(queries.shape) == (8, 16)


@pytest.mark.parametrize("mode", MODES)
def test_a_centred_forecaster_does_not_care_about_levels(mode: str) -> None:
    torch.manual_seed(0)
    model = Forecaster(dataclasses.replace(SETTINGS, mode=mode), 2).double().eval()
    past, future = torch.randn(3, 48, 2, dtype=torch.float64), torch.randn(3, 8, 2, dtype=torch.float64)
    shift = torch.tensor([100.0, -3.0], dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(model.forecast(past + shift), model.forecast(past) + shift)
        torch.testing.assert_close(model(past + shift, future + shift), model(past, future) + shift)
        model.centred = False
        assert not torch.allclose(model.forecast(past + shift), model.forecast(past) + shift)


def test_bad_input(data: ForecastData) -> None:
    with pytest.raises(OptionError, match="did you mean 'stepwise'"):
        ForecastSettings(mode="stepwis")
    with pytest.raises(OptionError, match=r"windows of 48 \+ 8 steps, but settings of 96 \+ 96"):
        train_forecaster(data)
    with pytest.raises(DataError, match="a season of 24 steps does not fit into a look-back of 8"):
        seasonal_naive(torch.zeros(1, 8, 2), 4, 24)
