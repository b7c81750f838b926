import numpy as np
import pandas as pd
import pytest

from rankscope_eval.baselines import BASELINES, FALLBACK
from rankscope_eval.metrics import QUANTILES

LEVELS = [*map(str, QUANTILES)]


def entry(target: list | np.ndarray, freq: str = "M") -> dict:
    return {"item_id": "a", "start": pd.Period("2020-01", freq=freq), "target": np.asarray(target, float)}


def run(name: str, target: list | np.ndarray, horizon: int, season: int) -> tuple[np.ndarray, bool]:
    (forecast,) = BASELINES[name]([entry(target)], horizon, season, QUANTILES)
    assert forecast.start_date == pd.Period("2020-01", freq="M") + len(target)
    return np.stack([forecast.quantile(q) for q in LEVELS]), forecast.info == FALLBACK


def test_naive_repeats_the_last_value() -> None:
    quantiles, _ = run("naive", [1, 2, np.nan, 7, np.nan], 3, 12)
    np.testing.assert_array_equal(quantiles, np.full((9, 3), 7.0))


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ([1, 2, 3, 4, 5, 6], [4, 5, 6, 4, 5]),
        ([1, 2, 3, 4, np.nan, 6], [4, 4, 6, 4, 4]),  # missing: the last value before it
        ([np.nan, 2, 3], [2, 2, 3, 2, 2]),  # nothing before it: the next one
        ([1, 4], [2.5] * 5),  # shorter than a season: the mean
    ],
)
def test_seasonal_naive_repeats_the_last_season(target: list, expected: list) -> None:
    quantiles, _ = run("seasonal-naive", target, 5, 3)
    np.testing.assert_array_equal(quantiles, np.tile(expected, (9, 1)))


@pytest.mark.parametrize("name", ["auto-ets", "auto-theta"])
def test_automatic_models_find_a_season_and_order_their_quantiles(name: str) -> None:
    rng = np.random.default_rng(0)
    profile = np.array([10.0, 20.0, 40.0, 15.0])
    target = np.tile(profile, 12) + rng.normal(0, 0.5, 48)
    target[17] = np.nan
    quantiles, fell_back = run(name, target, 4, 4)
    assert not fell_back
    np.testing.assert_allclose(quantiles[4], profile, rtol=0.15)
    assert (np.diff(quantiles, axis=0) >= 0).all()
    assert (quantiles[8] > quantiles[0]).all()
    again, _ = run(name, target, 4, 4)
    np.testing.assert_array_equal(quantiles, again)


@pytest.mark.parametrize("name", ["auto-ets", "auto-theta"])
@pytest.mark.parametrize("target", [[3.0] * 20, [1.0, 2.0], [np.nan] * 3 + [1.0] * 5])
def test_what_cannot_be_fitted_falls_back_to_seasonal_naive_and_is_counted(name: str, target: list) -> None:
    quantiles, fell_back = run(name, target, 3, 1)
    expected, _ = run("seasonal-naive", target, 3, 1)
    assert fell_back
    np.testing.assert_array_equal(quantiles, expected)


def test_a_fit_that_fails_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("no convergence")

    monkeypatch.setattr("statsforecast.models.AutoETS.forecast", fail)
    quantiles, fell_back = run("auto-ets", np.arange(20.0), 2, 1)
    assert fell_back
    np.testing.assert_array_equal(quantiles, np.full((9, 2), 19.0))
