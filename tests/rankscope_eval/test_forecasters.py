from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from chronos import BaseChronosPipeline
from gluonts.model.forecast import QuantileForecast, SampleForecast

from rankscope.errors import OptionError
from rankscope_eval.forecasters import Forecasting, pipeline_forecaster
from rankscope_eval.metrics import QUANTILES


def entries(count: int = 3) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    start = pd.Period("2020-01-01", freq="D")
    return [{"item_id": str(i), "start": start, "target": 5 + rng.normal(size=20 + 3 * i)} for i in range(count)]


def pipeline(folder: Path) -> Any:
    return BaseChronosPipeline.from_pretrained(folder, device_map="cpu")


def test_a_sampling_pipeline_gives_what_its_predict_draws(sampling_folder: Path) -> None:
    loaded = pipeline(sampling_folder)
    model = pipeline_forecaster("m", loaded, Forecasting(num_samples=7, seed=3))
    forecasts = list(model.forecast(entries(), 5, 1))
    torch.manual_seed(3)
    contexts = [torch.tensor(e["target"], dtype=torch.float32) for e in entries()]
    expected = loaded.predict(contexts, prediction_length=5, num_samples=7).numpy()
    for forecast, samples, entry in zip(forecasts, expected, entries(), strict=True):
        assert isinstance(forecast, SampleForecast)
        np.testing.assert_array_equal(forecast.samples, samples)
        assert forecast.start_date == entry["start"] + len(entry["target"])


@pytest.mark.parametrize("fixture", ["bolt_folder", "chronos2_folder"])
def test_a_quantile_pipeline_gives_its_quantiles(fixture: str, request: pytest.FixtureRequest) -> None:
    loaded = pipeline(request.getfixturevalue(fixture))
    forecasts = list(pipeline_forecaster("m", loaded).forecast(entries(), 5, 1))
    contexts = [torch.tensor(e["target"], dtype=torch.float32) for e in entries()]
    expected, mean = loaded.predict_quantiles(contexts, prediction_length=5, quantile_levels=list(QUANTILES))
    for i, forecast in enumerate(forecasts):
        assert isinstance(forecast, QuantileForecast)
        for level, q in enumerate(QUANTILES):
            np.testing.assert_array_equal(forecast.quantile(q), expected[i].reshape(5, 9)[:, level])
        np.testing.assert_array_equal(forecast.mean, mean[i].reshape(5))


def test_forecasts_do_not_depend_on_what_ran_before(sampling_folder: Path) -> None:
    model = pipeline_forecaster("m", pipeline(sampling_folder), Forecasting(num_samples=3))
    first = list(model.forecast(entries(), 4, 1))
    torch.rand(17)
    again = list(model.forecast(entries(), 4, 1))
    np.testing.assert_array_equal(first[2].samples, again[2].samples)
    reseeded = pipeline_forecaster("m", pipeline(sampling_folder), Forecasting(num_samples=3, seed=1))
    other = list(reseeded.forecast(entries(), 4, 1))
    assert any((a.samples != b.samples).any() for a, b in zip(first, other, strict=True))


def test_batches_cover_every_series_in_order(bolt_folder: Path) -> None:
    loaded = pipeline(bolt_folder)
    whole = list(pipeline_forecaster("m", loaded, Forecasting(batch_size=32)).forecast(entries(5), 4, 1))
    parts = list(pipeline_forecaster("m", loaded, Forecasting(batch_size=2)).forecast(entries(5), 4, 1))
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_allclose(a.forecast_array, b.forecast_array, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("option", ["num_samples", "batch_size"])
@pytest.mark.parametrize("value", [0, -1, 2.5, True])
def test_options_below_one_are_refused(option: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"{option} .* at least 1"):
        Forecasting(**{option: value})
