"""Local baselines: naive, seasonal naive, and statsforecast's AutoETS and AutoTheta."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rankscope.series.record import Entry

LONGEST_FIT = 2500
"""Maximum context of auto-ets and auto-theta; longer fits take minutes."""
FALLBACK = {"fallback": "seasonal-naive"}
"""Information of a forecast by seasonal naive where a fit failed."""


def naive_forecasts(entries: Sequence[Entry], horizon: int, season_length: int, levels: Any) -> Iterator[Any]:
    """Repeat the last value."""
    return seasonal_naive_forecasts(entries, horizon, 1, levels)


def seasonal_naive_forecasts(entries: Sequence[Entry], horizon: int, season_length: int, levels: Any) -> Iterator[Any]:
    """Repeat the last season; all quantiles are equal to the point forecast.

    Missing values are forward-filled; a context shorter than a season gives its mean. Computed in single precision, as
    in GluonTS' ``SeasonalNaivePredictor``.
    """
    from gluonts.model.seasonal_naive import SeasonalNaivePredictor
    from gluonts.transform.feature import LastValueImputation

    predictor = SeasonalNaivePredictor(horizon, season_length, imputation_method=LastValueImputation())
    for entry in entries:
        with np.errstate(invalid="ignore"):  # casting NaN to single precision warns on some processors
            forecast = predictor.predict_item(entry)
        yield forecast


def auto_ets_forecasts(
    entries: Sequence[Entry], horizon: int, season_length: int, levels: Sequence[float]
) -> Iterator[Any]:
    """Forecast with exponential smoothing selected by AICc; quantiles from statsforecast's prediction intervals."""
    from statsforecast.models import AutoETS

    return _fit_each(AutoETS, entries, horizon, season_length, levels)


def auto_theta_forecasts(
    entries: Sequence[Entry], horizon: int, season_length: int, levels: Sequence[float]
) -> Iterator[Any]:
    """Forecast with the best Theta variant; quantiles from statsforecast's prediction intervals."""
    from statsforecast.models import AutoTheta

    return _fit_each(AutoTheta, entries, horizon, season_length, levels)


def _fit_each(
    model: Any, entries: Sequence[Entry], horizon: int, season_length: int, levels: Sequence[float]
) -> Iterator[Any]:
    """Fit one model per series; fall back to seasonal naive where fitting fails."""
    from gluonts.model.forecast import QuantileForecast

    keys = [*(str(q) for q in levels), "mean"]
    for entry, point in zip(entries, seasonal_naive_forecasts(entries, horizon, season_length, levels), strict=True):
        values, info = _fit_one(model, entry["target"], horizon, season_length, levels), None
        if values is None:
            values, info = np.repeat(point.samples.astype(float), len(keys), axis=0), FALLBACK
        yield QuantileForecast(values, forecast_keys=keys, start_date=point.start_date, info=info)


def _fit_one(
    model: Any, target: np.ndarray, horizon: int, season_length: int, levels: Sequence[float]
) -> np.ndarray | None:
    """Return quantiles and mean of one series, ``[levels + 1, horizon]``, or None if the fit fails."""
    from gluonts.transform.feature import LastValueImputation

    context = np.asarray(target, dtype=float)[-LONGEST_FIT:]
    if np.isnan(context).any():
        context = LastValueImputation()(context.copy())
    if len(context) < 3 or np.ptp(context) == 0:
        return None
    # Seasonality needs at least two full seasons.
    season = season_length if len(context) >= 2 * season_length else 1
    widths = sorted({round(abs(2 * q - 1) * 100, 6) for q in levels if q != 0.5})
    state = np.random.get_state()  # noqa: NPY002  (the intervals of some models seed the global stream)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            result = model(season_length=season).forecast(y=context, h=horizon, level=widths or [80])
    except Exception:  # any numerical failure: fall back and count it
        return None
    finally:
        np.random.set_state(state)  # noqa: NPY002
    rows = [_interval(result, q) for q in levels]
    values = np.array([*rows, result["mean"]], dtype=float)
    return values if np.isfinite(values).all() else None


def _interval(result: dict[str, Any], level: float) -> np.ndarray:
    width = round(abs(2 * level - 1) * 100, 6)
    if width == 0:
        return np.asarray(result["mean"])
    side = "lo" if level < 0.5 else "hi"
    for key, values in result.items():
        if key.startswith(f"{side}-") and float(key[3:]) == width:
            return np.asarray(values)
    raise KeyError(f"{side}-{width}")


BASELINES = {
    "naive": naive_forecasts,
    "seasonal-naive": seasonal_naive_forecasts,
    "auto-ets": auto_ets_forecasts,
    "auto-theta": auto_theta_forecasts,
}
"""Local models by name."""
AUTOMATIC = ("auto-ets", "auto-theta")
"""Local models that are fitted and selected per series, which is slow."""
BASELINE = "seasonal-naive"
"""Default baseline of relative scores."""
