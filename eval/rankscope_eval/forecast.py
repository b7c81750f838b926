"""Forecasts of a user's series as a table."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankscope.errors import DataError, OptionError
from rankscope_eval.forecasters import Forecaster, open_forecaster, quiet_imports
from rankscope_eval.layouts import Columns
from rankscope_eval.metrics import QUANTILES
from rankscope_eval.readers import read_series
from rankscope_eval.series import Series, check_horizon, check_series, seasonality

if TYPE_CHECKING:
    import pandas as pd


def forecast_file(
    model: str | Forecaster,
    input: str | Path,
    horizon: int,
    *,
    quantiles: Sequence[float] = QUANTILES,
    freq: str | None = None,
    id_column: str | None = None,
    time_column: str | None = None,
    target_column: str | None = None,
    season_length: int | None = None,
    num_samples: int = 20,
    batch_size: int = 32,
    seed: int = 0,
    device: str = "cpu",
    dtype: Any = None,
    runtime: str = "auto",
) -> pd.DataFrame:
    """Forecast every series of a file (CSV, Parquet, JSON lines or Arrow) for ``horizon`` steps after its
    end.

    The id, time and target columns are found by their usual names unless they are given.

    Returns:
        A table with item_id, timestamp, mean, and one column per quantile, named as its level.

    Raises:
        RankscopeError: the file, the model or an option cannot be used.
    """
    check_horizon(horizon)
    check_quantiles(quantiles)
    series = read_series(input, freq=freq, columns=Columns(id_column, time_column, target_column))
    return forecast_series(
        model,
        series,
        horizon,
        quantiles=quantiles,
        season_length=season_length,
        num_samples=num_samples,
        batch_size=batch_size,
        seed=seed,
        device=device,
        dtype=dtype,
        runtime=runtime,
    )


def forecast_series(
    model: str | Forecaster,
    series: Sequence[Series],
    horizon: int,
    *,
    quantiles: Sequence[float] = QUANTILES,
    season_length: int | None = None,
    num_samples: int = 20,
    batch_size: int = 32,
    seed: int = 0,
    device: str = "cpu",
    dtype: Any = None,
    runtime: str = "auto",
) -> pd.DataFrame:
    """Forecast series in memory; see ``forecast_file``.

    Raises:
        RankscopeError: a series, the model or an option cannot be used.
    """
    import pandas as pd

    check_horizon(horizon)
    levels = check_quantiles(quantiles)
    check_series(series, "series")
    if season_length is not None and season_length < 1:
        raise OptionError(f"season_length {season_length!r} is not usable: give a whole number, at least 1.")
    quiet_imports()
    options = {
        "num_samples": num_samples,
        "batch_size": batch_size,
        "seed": seed,
        "device": device,
        "dtype": dtype,
        "runtime": runtime,
    }
    forecaster = model if isinstance(model, Forecaster) else open_forecaster(model, **options)
    season = season_length or seasonality(series[0].start.freqstr)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # pandas on business-day periods
        forecasts, _ = forecaster.forecast([one.entry for one in series], horizon, season, levels)
        frames = [
            pd.DataFrame(
                {
                    "item_id": one.item_id,
                    "timestamp": one.timestamps(len(one), horizon),
                    "mean": np.asarray(forecast.mean, dtype=float),
                    **{str(q): np.asarray(forecast.quantile(str(q)), dtype=float) for q in levels},
                }
            )
            for one, forecast in zip(series, forecasts, strict=True)
        ]
    table = pd.concat(frames, ignore_index=True)
    if table.iloc[:, 2:].isna().any(axis=None):
        bad = table.loc[table.iloc[:, 2:].isna().any(axis=1), "item_id"].iloc[0]
        raise DataError(f"model {forecaster.name!r} forecasts NaN for series {bad!r}.")
    return table


def check_quantiles(quantiles: Sequence[float]) -> tuple[float, ...]:
    """The levels in ascending order, refused unless they lie strictly between 0 and 1 and differ.

    >>> check_quantiles([0.9, 0.1])
    (0.1, 0.9)

    Raises:
        OptionError: a level is outside (0, 1), repeated, or there is none.
    """
    levels = tuple(sorted(float(q) for q in quantiles))
    if not levels or len(set(levels)) < len(levels) or not all(0 < q < 1 for q in levels):
        raise OptionError(f"quantiles {list(quantiles)!r} are not usable: give different levels between 0 and 1.")
    return levels
