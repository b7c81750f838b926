"""Local models of published results: statsforecast's, with the quantiles of its prediction intervals."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

MODELS = {
    "naive": ("Naive", False),
    "seasonal-naive": ("SeasonalNaive", True),
    "auto-ets": ("AutoETS", True),
    "auto-theta": ("AutoTheta", True),
}
"""Name → class of statsforecast, and whether it has a season."""

Values = Float[np.ndarray, "series horizon"]


def forecast_locally(
    model: str, series: Sequence[Float[np.ndarray, " _"]], horizon: int, season: int, levels: Sequence[float]
) -> tuple[Values, list[Values]]:
    """Forecast every series on its own; a model that cannot be fitted to one is replaced by the seasonal naive.

    Missing values repeat the last one before them, and are zero before the first.

    Args:
        model: a name of `MODELS`.
        series: histories.
        horizon: steps to forecast.
        season: season length.
        levels: quantile levels in (0, 1).

    Returns:
        Point forecasts, and quantiles by level; NaN where a series is shorter than a season.
    """
    import pandas as pd
    from statsforecast import StatsForecast, models

    kind, seasonal = MODELS[model]
    frame = pd.DataFrame(
        {
            "unique_id": np.repeat(np.arange(len(series)), [len(one) for one in series]),
            "ds": np.concatenate([np.arange(len(one)) for one in series]),
            "y": np.concatenate([np.asarray(one, dtype=float) for one in series]),
        }
    )
    frame["y"] = frame.groupby("unique_id", sort=False)["y"].ffill().fillna(0.0)
    predictor = StatsForecast(
        models=[getattr(models, kind)(season_length=season) if seasonal else getattr(models, kind)()],
        freq=1,
        fallback_model=models.SeasonalNaive(season_length=season),
    )
    widths: list[Any] = [round(abs(2 * level - 1) * 100, 6) for level in levels]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = predictor.forecast(df=frame, h=horizon, level=sorted({*widths} - {0.0}) or None)
    columns = [
        f"{kind}-{'lo' if level < 0.5 else 'hi'}-{width}" if width else kind
        for level, width in zip(levels, widths, strict=True)
    ]
    point, *quantiles = (made[name].to_numpy().reshape(len(series), horizon) for name in (kind, *columns))
    return point, quantiles
