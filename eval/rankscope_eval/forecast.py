"""Forecast a user's series."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankscope.errors import DataError, OptionError, check_count
from rankscope.series import Columns, Series, read_series
from rankscope.series.frequency import seasonality
from rankscope.series.record import check_series
from rankscope_eval.baselines import FALLBACK
from rankscope_eval.forecasters import Forecaster, Forecasting, open_forecaster, quiet_imports
from rankscope_eval.metrics import QUANTILES

if TYPE_CHECKING:
    import pandas as pd

    from rankscope.checkpoints import Checkpoint

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of a cell that spreadsheets take for a formula."""
CSV_FLOAT = "%.9g"
"""Numbers in CSV: nine digits tell any two in single precision, which models forecast in, apart."""


def forecast_file(
    model: str | Path | Checkpoint | Forecaster,
    input: str | Path,
    horizon: int,
    how: Forecasting | None = None,
    *,
    quantiles: Sequence[float] = QUANTILES,
    columns: Columns | None = None,
    freq: str | None = None,
    season_length: int | None = None,
    context: int | None = None,
) -> pd.DataFrame:
    """Forecast the next ``horizon`` steps of every series of a file (CSV, Parquet, JSON lines or Arrow).

    The id, time and target columns are found by common names unless given. The model sees the last ``context`` values
    of each series (default: its own context length); a series without values there gets a NaN forecast.

    Returns:
        Table with columns item_id, timestamp, mean, and one per quantile, named by its level.

    Raises:
        RankscopeError: invalid file, model or option.
    """
    check_count("horizon", horizon)
    check_quantiles(quantiles)
    series = read_series(input, freq=freq, columns=columns, numbers=False)
    return forecast_series(
        model, series, horizon, how, quantiles=quantiles, season_length=season_length, context=context
    )


def forecast_series(
    model: str | Path | Checkpoint | Forecaster,
    series: Iterable[Series],
    horizon: int,
    how: Forecasting | None = None,
    *,
    quantiles: Sequence[float] = QUANTILES,
    season_length: int | None = None,
    context: int | None = None,
) -> pd.DataFrame:
    """Forecast series in memory; see ``forecast_file``.

    Raises:
        RankscopeError: invalid series, model or option.
    """
    horizon = check_count("horizon", horizon)
    levels = check_quantiles(quantiles)
    season_length = None if season_length is None else check_count("season_length", season_length)
    series = list(series)
    check_series(series, "series", numbers=False)
    quiet_imports()
    forecaster = model if isinstance(model, Forecaster) else open_forecaster(model, how)
    check_context(context, forecaster.context, forecaster.name)
    for one in series:
        one.check_times(horizon)  # too late ones are refused before the forecasts
    values, _, lost = forecast_all(forecaster, series, context, horizon, levels, season_length)
    if lost.any():
        name = series[lost.argmax()].item_id
        raise DataError(
            f"model {forecaster.name!r} returned NaN or infinite values for series {name!r}: leave it out, or give "
            "--out DIR/ and --on-error skip."
        )
    return forecast_rows(series, values, levels)


def forecast_all(
    forecaster: Forecaster,
    series: Sequence[Series],
    context: int | None,
    horizon: int,
    levels: Sequence[float],
    season_length: int | None,
    where: str = "",
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Forecast all series, those without a value in their context as NaN.

    Returns:
        `forecast_values`; True for each series with a value in its context; True for each whose forecast failed.
    """
    shown = [one.last(context or forecaster.context) for one in series]
    there = np.array([np.isfinite(one.target).any() for one in shown], dtype=bool)
    values = np.full((len(series), 1 + len(levels), horizon), np.nan)
    some = [one for one, number in zip(shown, there, strict=True) if number]
    values[there] = forecast_values(forecaster, some, horizon, levels, season_length, where)
    return values, there, there & ~np.isfinite(values).all(axis=(1, 2))


def forecast_values(
    forecaster: Forecaster,
    series: Sequence[Series],
    horizon: int,
    levels: Sequence[float],
    season_length: int | None,
    where: str = "",
) -> np.ndarray:
    """Return mean and quantiles, ``[series, 1 + levels, horizon]``; quantiles that cross are sorted.

    Warns of series to which a local model cannot be fitted.

    Args:
        forecaster: model.
        series: input series.
        horizon: forecast horizon in steps.
        levels: quantile levels, ascending.
        season_length: season length of all series (default: from the frequency of each).
        where: prefix of error messages.

    Raises:
        DataError: the model fails on the numbers of some series.
    """
    if not series:
        return np.empty((0, 1 + len(levels), horizon))
    seasons = [season_length or seasonality(one.start.freqstr) for one in series]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # pandas on business-day periods
        forecasts = forecaster.forecast([one.entry for one in series], horizon, seasons, levels)
        fallen_back = False
        try:
            rows = []
            for one in forecasts:
                rows.append([one.mean, *(one.quantile(str(level)) for level in levels)])
                fallen_back |= one.info == FALLBACK
        except ArithmeticError as error:
            between = f"between series {series[0].item_id!r} and {series[-1].item_id!r}"
            raise DataError(f"{where}model {forecaster.name!r} fails {between}: {error}.") from error
    if fallen_back:
        warnings.warn(
            f"{forecaster.name} cannot be fitted to some of the series: their forecasts are those of seasonal-naive.",
            stacklevel=2,
        )
    values = np.array(rows, dtype=float)
    ordered = np.sort(values[:, 1:], axis=1)  # quantile heads may cross
    if 0.5 in levels:  # a mean that is the median follows it
        middle = levels.index(0.5)
        values[:, 0] = np.where(values[:, 0] == values[:, 1 + middle], ordered[:, middle], values[:, 0])
    values[:, 1:] = ordered
    return values


def spreadsheet_safe(name: str) -> str:
    """Return a name with an apostrophe before it if a spreadsheet would take it for a formula.

    >>> spreadsheet_safe("=1+1"), spreadsheet_safe("sales")
    ("'=1+1", 'sales')
    """
    return f"'{name}" if name.startswith(FORMULA) else name


def forecast_rows(series: Sequence[Series], values: np.ndarray, levels: Sequence[float]) -> pd.DataFrame:
    """Convert forecasts to a table with one row per series and step.

    Args:
        series: input series.
        values: output of ``forecast_values``.
        levels: quantile levels.
    """
    import pandas as pd

    horizon = values.shape[-1]
    columns = dict(
        zip(["mean", *map(str, levels)], values.transpose(1, 0, 2).reshape(1 + len(levels), -1), strict=True)
    )
    names = np.array([one.item_id for one in series], dtype=object).repeat(horizon)
    return pd.DataFrame({"item_id": names, "timestamp": forecast_times(series, horizon), **columns})


def forecast_times(series: Sequence[Series], steps: int) -> pd.DatetimeIndex:
    """Return the timestamps after the end of each series, concatenated over series."""
    import pandas as pd

    known: dict[Any, pd.DatetimeIndex] = {}  # most series of a file share start and end
    parts = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        for one in series:
            key = (one.start, one.stamp, len(one))
            if key not in known:
                known[key] = pd.DatetimeIndex(one.timestamps(len(one), steps))
            parts.append(known[key])
    return parts[0].append(parts[1:]) if parts else pd.DatetimeIndex([])


def check_context(context: int | None, most: int | None, name: str) -> None:
    """Validate the context length: at least 1 and at most the model's.

    Raises:
        OptionError: it is neither None nor within that range.
    """
    if context is None:
        return
    check_count("context", context)
    if most is not None and context > most:
        raise OptionError(
            f"context {context} is longer than that of {name}, which sees {most} values: give at most that."
        )


def check_quantiles(quantiles: Sequence[float]) -> tuple[float, ...]:
    """Validate quantile levels, distinct and in (0, 1), and sort them.

    >>> check_quantiles([0.9, 0.1])
    (0.1, 0.9)

    Raises:
        OptionError: a level is outside (0, 1), repeated, or there is none.
    """
    try:
        levels = tuple(sorted(float(q) for q in quantiles))
    except (TypeError, ValueError) as error:
        raise OptionError(f"quantiles {quantiles!r} are not usable: give a list, [0.1, 0.5, 0.9].") from error
    if not levels or len(set(levels)) < len(levels) or not all(0 < q < 1 for q in levels):
        raise OptionError(f"quantiles {list(quantiles)!r} are not usable: give different levels between 0 and 1.")
    return levels
