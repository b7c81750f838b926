"""The two scores of the Chronos benchmark, computed by GluonTS: MASE and WQL."""

from __future__ import annotations

import io
import warnings
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from rankscope.errors import DataError
from rankscope_eval.series import seasonality

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

    ``sums`` has per window what these are quotients of: the quantile loss, its mean over the levels, and |y|, then
    the scaled error and the number of its values. WQL is the first column's sum over the second's, MASE the third's
    over the fourth's.
    """

    MASE: float
    WQL: float
    unscaled: int = 0
    sums: Float[np.ndarray, "windows 4"] | None = field(default=None, compare=False, repr=False)


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
    from gluonts.model.evaluation import evaluate_forecasts_raw

    # GluonTS draws its own progress bar on stderr, and divides by zero on purpose.
    with redirect_stderr(io.StringIO()), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            found = evaluate_forecasts_raw(
                forecasts,
                test_data=test_data,
                metrics=[MASE(), MeanWeightedSumQuantileLoss(list(QUANTILES)), _Sums],
                axis=None,
                batch_size=5000,
                seasonality=season_length,
            )
        except ValueError as error:
            raise DataError(f"the forecasts cannot be scored: {error}") from error
        unscaled = sum(_has_no_scale(entry, season_length) for entry in test_data.input)
    wql = _number(found["mean_weighted_sum_quantile_loss"])
    return Scores(_number(found["MASE[0.5]"]), wql, unscaled, found[_Sums.name])


class _Sums:
    """What GluonTS' two scores are quotients of, window by window; it is used like one of its metrics."""

    name = "sums"

    def __init__(self, axis: Any) -> None:
        self._parts: list[np.ndarray] = []

    def update(self, data: Any) -> None:
        from gluonts.ev.stats import absolute_label, absolute_scaled_error, quantile_loss

        loss = sum(quantile_loss(data, q) for q in QUANTILES) / len(QUANTILES)
        scaled = absolute_scaled_error(data, "0.5")
        totals = [np.ma.filled(np.ma.sum(one, axis=1), 0.0) for one in (loss, absolute_label(data), scaled)]
        self._parts.append(np.stack([*totals, np.ma.count(scaled, axis=1)], axis=1).astype(np.float64))

    def get(self) -> Float[np.ndarray, "windows 4"]:
        return np.concatenate(self._parts)


def _has_no_scale(entry: dict[str, Any], season_length: int | None) -> bool:
    """Whether every step over a season is 0 or missing, so that GluonTS' seasonal error is 0."""
    context = np.asarray(entry["target"], dtype=float)
    season = season_length or seasonality(entry["start"].freqstr)
    lag = season if season <= len(context) else 1  # GluonTS' rule for a context shorter than a season
    steps = context[lag:] - context[: len(context) - lag]
    return not (steps[~np.isnan(steps)] != 0).any()


def _number(value: Any) -> float:
    return float("nan") if np.ma.is_masked(value) else float(value)
