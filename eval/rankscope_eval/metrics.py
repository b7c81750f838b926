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
    from gluonts.model.evaluation import evaluate_forecasts_raw

    sums = _Sums()
    # GluonTS draws its own progress bar on stderr, and divides by zero on purpose.
    with redirect_stderr(io.StringIO()), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            evaluate_forecasts_raw(
                forecasts,
                test_data=test_data,
                metrics=[lambda axis: sums],
                axis=None,
                batch_size=5000,
                seasonality=season_length,
            )
        except ValueError as error:
            raise DataError(f"the forecasts cannot be scored: {error}") from error
        *losses, labels, scaled, count = sums.totals
        mase, wql = scaled / count, np.mean([loss / labels for loss in losses])
    return Scores(float(mase), float(wql), sums.unscaled, np.concatenate(sums.windows))


class _Sums:
    """What both scores are quotients of; GluonTS takes it for one of its metrics, and every loss is computed once."""

    name = "sums"

    def __init__(self) -> None:
        self.totals = np.zeros(len(QUANTILES) + 3)
        self.windows: list[np.ndarray] = []
        self.unscaled = 0

    def update(self, data: Any) -> None:
        from gluonts.ev.stats import absolute_label, absolute_scaled_error, quantile_loss

        names = ("label", "seasonal_error", *map(str, QUANTILES))
        data = {name: data[name] for name in names}  # GluonTS sorts sample paths each time that it is asked
        losses = [quantile_loss(data, q) for q in QUANTILES]
        labels, scaled = absolute_label(data), absolute_scaled_error(data, "0.5")
        count = np.ma.count(scaled, axis=1)
        self.totals += [*(np.ma.sum(one) or 0.0 for one in (*losses, labels, scaled)), count.sum()]
        rows = [np.ma.filled(np.ma.sum(one, axis=1), 0.0) for one in (sum(losses) / len(losses), labels, scaled)]
        self.windows.append(np.stack([*rows, count], axis=1).astype(np.float64))
        self.unscaled += int((~(data["seasonal_error"] > 0)).sum())

    def get(self) -> None:
        """Return nothing: the caller has the object."""
