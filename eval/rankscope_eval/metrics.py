"""The two scores of the Chronos benchmark, computed by GluonTS: MASE and WQL."""

from __future__ import annotations

import io
import warnings
from contextlib import redirect_stderr
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from rankscope.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

QUANTILES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Levels of WQL; 0.5 is MASE's forecast."""


class Scores:
    """Scores of one model on one task; GluonTS takes it for one of its metrics, and every loss is computed once.

    Attributes:
        windows: what the scores are quotients of, a row per window and an array per batch: the quantile loss, its mean
            over the levels, and |y|, then the scaled error and the number of its values. WQL is the first column's sum
            over the second's, MASE the third's over the fourth's.
        unscaled: windows whose seasonal error is 0 (a constant context): GluonTS leaves them out of MASE, not of WQL.
    """

    name = "scores"

    def __init__(self) -> None:
        self.windows: list[Float[np.ndarray, "windows 4"]] = []
        self.unscaled = 0
        self._totals = np.zeros(len(QUANTILES) + 3)

    @property
    def MASE(self) -> float:
        """Mean over series and time of |y − ŷ₀.₅| over the series' seasonal error; missing y are left out."""
        with np.errstate(all="ignore"):
            return float(self._totals[-2] / self._totals[-1])

    @property
    def WQL(self) -> float:
        """Mean over the nine levels of twice the summed quantile loss over Σ|y|; missing y are left out."""
        with np.errstate(all="ignore"):
            return float(np.mean([loss / self._totals[-3] for loss in self._totals[:-3]]))

    def update(self, data: Any) -> None:
        """Add a batch of GluonTS' arrays."""
        from gluonts.ev.stats import absolute_label, absolute_scaled_error, quantile_loss

        names = ("label", "seasonal_error", *map(str, QUANTILES))
        data = {name: data[name] for name in names}  # GluonTS sorts sample paths each time that it is asked
        losses = [quantile_loss(data, q) for q in QUANTILES]
        labels, scaled = absolute_label(data), absolute_scaled_error(data, "0.5")
        count = np.ma.count(scaled, axis=1)
        self._totals += [*(np.ma.sum(one) or 0.0 for one in (*losses, labels, scaled)), count.sum()]
        rows = [np.ma.filled(np.ma.sum(one, axis=1), 0.0) for one in (sum(losses) / len(losses), labels, scaled)]
        self.windows.append(np.stack([*rows, count], axis=1).astype(np.float64))
        self.unscaled += int((~(data["seasonal_error"] > 0)).sum())

    def get(self) -> None:
        """Return nothing to GluonTS: the caller has the object."""


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

    scores = Scores()
    # GluonTS draws its own progress bar on stderr, and divides by zero on purpose.
    with redirect_stderr(io.StringIO()), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            evaluate_forecasts_raw(
                forecasts,
                test_data=test_data,
                metrics=[lambda axis: scores],
                axis=None,
                batch_size=5000,
                seasonality=season_length,
            )
        except ValueError as error:
            raise DataError(f"the forecasts cannot be scored: {error}") from error
    return scores
