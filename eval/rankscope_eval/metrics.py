"""The two scores of the Chronos benchmark, computed by GluonTS: MASE and WQL."""

from __future__ import annotations

import io
import warnings
from contextlib import redirect_stderr
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rankscope.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

QUANTILES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Levels of WQL; 0.5 is MASE's forecast."""


@dataclass(frozen=True)
class Scores:
    """Scores of one model on one task.

    ``MASE`` is the mean over series and time of |y − ŷ₀.₅| over the series' seasonal error; ``WQL`` the mean
    over the nine levels of twice the summed quantile loss over Σ|y|. Missing values of y are left out of
    both. ``unscaled`` counts the windows whose seasonal error is 0 (a constant context): GluonTS leaves them
    out of MASE, not of WQL.
    """

    MASE: float
    WQL: float
    unscaled: int = 0


def score(forecasts: Sequence[Any], test_data: Any, season_length: int | None = None) -> Scores:
    """Scores of forecasts, aggregated over all series and time steps.

    Args:
        forecasts: GluonTS forecasts, one per window of ``test_data``, in its order.
        test_data: what ``gluonts.dataset.split.TestTemplate.generate_instances`` gives.
        season_length: MASE's season; None takes GluonTS' season of each series' frequency.

    Raises:
        DataError: a forecast is NaN.
    """
    from gluonts.ev.metrics import MASE, MeanWeightedSumQuantileLoss
    from gluonts.model.evaluation import evaluate_forecasts

    # GluonTS draws its own progress bar on stderr, and divides by zero on purpose.
    with redirect_stderr(io.StringIO()), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            frame = evaluate_forecasts(
                forecasts,
                test_data=test_data,
                metrics=[MASE(), MeanWeightedSumQuantileLoss(list(QUANTILES))],
                axis=None,
                batch_size=5000,
                seasonality=season_length,
            )
        except ValueError as error:
            raise DataError(f"the forecasts cannot be scored: {error}") from error
        unscaled = sum(_seasonal_error(entry, season_length) == 0 for entry in test_data.input)
    row = frame.iloc[0]
    return Scores(_number(row["MASE[0.5]"]), _number(row["mean_weighted_sum_quantile_loss"]), unscaled)


def _seasonal_error(entry: dict[str, Any], season_length: int | None) -> float:
    from gluonts.ev.ts_stats import seasonal_error

    from rankscope_eval.series import seasonality

    season = season_length or seasonality(entry["start"].freqstr)
    error = seasonal_error(np.ma.masked_invalid(entry["target"]), seasonality=season, time_axis=-1)
    return float(np.ma.filled(error, 0.0).item())


def _number(value: Any) -> float:
    return float("nan") if np.ma.is_masked(value) else float(value)
