"""MASE and WQL of the Chronos benchmark, computed with GluonTS."""

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
"""Quantile levels of WQL; MASE uses 0.5."""


class Scores:
    """Scores of a model on a task, implemented as a single GluonTS metric so that each loss is computed once.

    Attributes:
        windows: numerators and denominators of the scores, one row per window and one array per batch: mean quantile
            loss over levels, Σ|y|, scaled error, and its number of values. WQL is the ratio of the first two column
            sums, MASE that of the last two.
        unscaled: windows with zero seasonal error (constant context), which GluonTS excludes from MASE but not from
            WQL.
    """

    name = "scores"

    def __init__(self) -> None:
        self.windows: list[Float[np.ndarray, "windows 4"]] = []
        self.unscaled = 0
        self._totals = np.zeros(len(QUANTILES) + 3)

    @property
    def MASE(self) -> float:
        """Mean over series and time of |y − ŷ₀.₅| / seasonal error; missing y are excluded."""
        with np.errstate(all="ignore"):
            return float(self._totals[-2] / self._totals[-1])

    @property
    def WQL(self) -> float:
        """Mean over the nine levels of twice the summed quantile loss / Σ|y|; missing y are excluded."""
        with np.errstate(all="ignore"):
            return float(np.mean([loss / self._totals[-3] for loss in self._totals[:-3]]))

    def update(self, data: Any) -> None:
        """Add a batch of GluonTS arrays."""
        from gluonts.ev.stats import absolute_label, absolute_scaled_error, quantile_loss

        names = ("label", "seasonal_error", *map(str, QUANTILES))
        data = {name: data[name] for name in names}  # GluonTS sorts the sample paths on every access
        losses = [quantile_loss(data, q) for q in QUANTILES]
        labels, scaled = absolute_label(data), absolute_scaled_error(data, "0.5")
        count = np.ma.count(scaled, axis=1)
        self._totals += [*(np.ma.sum(one) or 0.0 for one in (*losses, labels, scaled)), count.sum()]
        rows = [np.ma.filled(np.ma.sum(one, axis=1), 0.0) for one in (sum(losses) / len(losses), labels, scaled)]
        self.windows.append(np.stack([*rows, count], axis=1).astype(np.float64))
        self.unscaled += int((~(data["seasonal_error"] > 0)).sum())

    def get(self) -> None:
        """Return nothing; the caller reads the object."""


def score(forecasts: Sequence[Any], test_data: Any, season_length: int | None = None) -> Scores:
    """Score forecasts over all series and time steps.

    Args:
        forecasts: GluonTS forecasts, one per window of ``test_data``, in order.
        test_data: output of ``gluonts.dataset.split.TestTemplate.generate_instances``.
        season_length: season length of MASE (default: GluonTS' for the frequency of each series).

    Raises:
        DataError: a forecast is NaN.
    """
    from gluonts.model.evaluation import evaluate_forecasts_raw

    scores = Scores()
    # GluonTS prints its own progress bar and divides by zero on purpose.
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
