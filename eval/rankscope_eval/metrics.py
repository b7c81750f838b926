"""Scores of forecasts by GluonTS' definitions: WQL and MASE of the Chronos benchmark, SQL, WAPE, MSIS, coverage."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from rankscope.errors import DataError
from rankscope.series import Series
from rankscope.series.frequency import seasonality
from rankscope.series.record import Entry
from rankscope_eval.suites import Task

QUANTILES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Quantile levels of WQL and SQL; MASE and WAPE use 0.5, coverage the outer two."""
ALPHA = 0.05
"""MSIS scores the central interval of 1 − α."""
BANDS = 4
"""Parts of the horizon that comparisons look at apart."""
BLOCK = 5000
"""Windows scored at a time."""


@dataclass(frozen=True)
class Windows:
    """Test windows of a task, cut once for all models.

    Attributes:
        task: protocol.
        series: of the task, in order; each gives ``task.num_rolls`` windows.
    """

    task: Task
    series: Sequence[Series]

    @cached_property
    def _cut(self) -> tuple[list[Entry], Float[np.ma.MaskedArray, "windows horizon"]]:
        from gluonts.dataset.split import split

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # pandas, on business-day periods
            _, template = split([one.entry for one in self.series], offset=self.task.offset)
            cut = template.generate_instances(self.task.prediction_length, windows=self.task.num_rolls)
            contexts, targets = list(cut.input), np.stack([label["target"] for label in cut.label])
        known = np.array([np.isfinite(entry["target"]).any() for entry in contexts])
        return contexts, np.ma.masked_invalid(np.where(known[:, None], targets, np.nan))

    @property
    def contexts(self) -> list[Entry]:
        """All values before each window."""
        return self._cut[0]

    @property
    def targets(self) -> Float[np.ma.MaskedArray, "windows horizon"]:
        """Values to forecast; missing ones are masked, and all of a window before which there is no value."""
        return self._cut[1]

    @cached_property
    def seasons(self) -> list[int]:
        """Season length of each window: the task's, or GluonTS' for the frequency of the series."""
        return [self.task.season_length or seasonality(entry["start"].freqstr) for entry in self.contexts]

    @property
    def season(self) -> int | None:
        """Season length of all windows; None where it differs."""
        lengths = {*self.seasons}
        return lengths.pop() if len(lengths) == 1 else None

    @cached_property
    def seasonal_errors(self) -> Float[np.ndarray, "windows 1"]:
        """Mean absolute seasonal difference of each context."""
        from gluonts.ev.ts_stats import seasonal_error

        errors = []
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # the mean of no difference
            for entry, season in zip(self.contexts, self.seasons, strict=True):
                target = entry["target"]
                known = target if np.isfinite(target).all() else np.ma.masked_invalid(target)  # masked arrays are slow
                errors.append(seasonal_error(known, seasonality=season, time_axis=-1))
        return np.array(errors)


@dataclass(frozen=True)
class StepScores:
    """Scores by step of the horizon, the first step first; NaN where all targets are missing.

    Attributes:
        WQL: weighted quantile loss.
        MASE: mean absolute scaled error.
        coverage: share of targets in the central 80 % interval.
        calibration_error: mean over the nine levels of |share of targets up to the quantile − level|.
    """

    WQL: tuple[float, ...]
    MASE: tuple[float, ...]
    coverage: tuple[float, ...]
    calibration_error: tuple[float, ...]


@dataclass(frozen=True)
class Scores:
    """Scores of a model on a task; missing targets are excluded.

    Attributes:
        MASE: mean of |y − ŷ₀.₅| / seasonal error.
        WQL: mean over levels of twice the summed quantile loss / Σ|y|.
        SQL: mean over levels of twice the quantile loss / seasonal error.
        WAPE: Σ|y − ŷ₀.₅| / Σ|y|, also called ND.
        MSIS: mean interval score of the central 95 % interval / seasonal error; GluonTS extrapolates quantiles beyond
            those that a model gives.
        coverage: share of targets in the central 80 % interval.
        unscaled: windows with zero seasonal error (constant context), which count in WQL, WAPE and coverage alone, and
            those without a value before them, which count in no score.
        sums: by window and part of the horizon: mean quantile loss over levels, Σ|y|, scaled error, and its number of
            values. WQL is the ratio of the first two, MASE that of the last two.
        steps: scores by step.
    """

    MASE: float
    WQL: float
    SQL: float
    WAPE: float
    MSIS: float
    coverage: float
    unscaled: int
    sums: Float[np.ndarray, "windows bands 4"]
    steps: StepScores


def band_edges(horizon: int) -> list[int]:
    """First steps of the parts of a horizon.

    >>> band_edges(12), band_edges(3), band_edges(6)
    ([0, 3, 6, 9], [0, 1, 2], [0, 2, 3, 4])
    """
    parts = min(BANDS, horizon)
    return [round(part * horizon / parts) for part in range(parts)]


def score(forecasts: Iterable[Any], windows: Windows) -> Scores:
    """Score forecasts over all series and time steps.

    Args:
        forecasts: GluonTS forecasts of one form, one per window, in order; read as they come.
        windows: of the task.

    Raises:
        DataError: a forecast is NaN.
    """
    waiting, first = iter(forecasts), 0
    blocks = []
    while block := list(islice(waiting, BLOCK)):
        rows = slice(first, first + len(block))
        data = {"label": windows.targets[rows], "seasonal_error": windows.seasonal_errors[rows], **_quantiles(block)}
        with warnings.catch_warnings(), np.errstate(all="ignore"):  # GluonTS divides by zero on purpose
            warnings.simplefilter("ignore")
            blocks.append(_summed(data))
        first += len(block)
    if first != len(windows.targets):
        raise ValueError(f"{first} forecasts of {len(windows.targets)} windows.")
    with np.errstate(all="ignore"):
        return _scores(blocks, int((~(windows.seasonal_errors > 0)).sum()))


_LEVELS = tuple(dict.fromkeys([*map(str, QUANTILES), str(ALPHA / 2), str(1 - ALPHA / 2)]))


def _quantiles(forecasts: Sequence[Any]) -> dict[str, Float[np.ndarray, "windows horizon"]]:
    """Quantiles of forecasts by level, all forecasts at once: one forecast of all their steps."""
    from gluonts.model.forecast import SampleForecast

    one = forecasts[0]
    if isinstance(one, SampleForecast):
        joined: Any = SampleForecast(np.concatenate([each.samples for each in forecasts], axis=1), one.start_date)
    else:
        arrays = np.concatenate([each.forecast_array for each in forecasts], axis=1)
        joined = type(one)(arrays, one.start_date, one.forecast_keys)
    with np.errstate(all="ignore"):  # tails of equal quantiles
        found = {level: joined.quantile(level).reshape(len(forecasts), -1) for level in _LEVELS}
    if any(np.isnan(found[str(level)]).any() for level in QUANTILES):
        raise DataError("the forecasts cannot be scored: one contains NaN.")
    return found


class _Summed(NamedTuple):
    """Losses of some windows, summed as scores need them.

    Attributes:
        whole: over windows and steps, by name: a number, of ``loss`` one per level.
        steps: over windows, by name: a number per step, of ``up_to`` one per level and step.
        bands: see ``sums`` of `Scores`.
    """

    whole: dict[str, Any]
    steps: dict[str, Any]
    bands: Float[np.ndarray, "windows bands 4"]


def _summed(data: dict[str, Any]) -> _Summed:
    """Sum the losses of windows: labels, seasonal errors and quantiles by GluonTS' names."""
    from gluonts.ev import stats

    losses = [stats.quantile_loss(data, q) for q in QUANTILES]
    labels, scaled = stats.absolute_label(data), stats.absolute_scaled_error(data, "0.5")
    interval = stats.scaled_interval_score(data, ALPHA)
    known, with_scale = ~np.ma.getmaskarray(labels), ~np.ma.getmaskarray(scaled)
    inside = np.ma.filled((data["label"] >= data["0.1"]) & (data["label"] <= data["0.9"]), False)
    whole = {
        "loss": np.array([_total(one) for one in losses]),
        "scaled_loss": _total(sum(losses) / data["seasonal_error"]),
        "label": _total(labels),
        "scaled": _total(scaled),
        "error": _total(stats.absolute_error(data, "0.5")),
        "interval": _total(interval),
        "intervals": np.ma.count(interval),
        "known": known.sum(),
        "with_scale": with_scale.sum(),
        "inside": inside.sum(),
    }
    columns = [sum(losses) / len(losses), labels, scaled, with_scale]
    columns = [np.ma.filled(one, 0.0).astype(np.float64) for one in columns]
    steps = {
        **{name: one.sum(axis=0) for name, one in zip(_BAND_SUMS, columns, strict=True)},
        "inside": inside.sum(axis=0),
        "known": known.sum(axis=0),
        "up_to": np.stack([np.ma.filled(stats.coverage(data, q), 0.0).sum(axis=0) for q in QUANTILES]),
    }
    bands = [np.add.reduceat(one, band_edges(one.shape[1]), axis=1) for one in columns]
    return _Summed(whole, steps, np.stack(bands, axis=-1))


_BAND_SUMS = ("loss", "label", "scaled", "with_scale")


def _total(values: Any) -> float:
    """Sum of what is not masked; 0 where all is."""
    return float(np.ma.sum(values) or 0.0)


def _scores(blocks: Sequence[_Summed], unscaled: int) -> Scores:
    whole, steps = (
        {name: sum(one[name] for one in parts) for name in parts[0]}
        for parts in ([block.whole for block in blocks], [block.steps for block in blocks])
    )
    levels = np.array(QUANTILES)[:, None]
    return Scores(
        MASE=float(whole["scaled"] / whole["with_scale"]),
        WQL=float(np.mean([one / whole["label"] for one in whole["loss"]])),
        SQL=float(whole["scaled_loss"] / (whole["with_scale"] * len(QUANTILES))),
        WAPE=float(np.float64(whole["error"]) / whole["label"]),
        MSIS=float(whole["interval"] / whole["intervals"]),
        coverage=float(whole["inside"] / whole["known"]),
        unscaled=unscaled,
        sums=np.concatenate([block.bands for block in blocks]),
        steps=StepScores(
            WQL=tuple((steps["loss"] / steps["label"]).tolist()),
            MASE=tuple((steps["scaled"] / steps["with_scale"]).tolist()),
            coverage=tuple((steps["inside"] / steps["known"]).tolist()),
            calibration_error=tuple(np.abs(steps["up_to"] / steps["known"] - levels).mean(axis=0).tolist()),
        ),
    )


def by_series(sums: Float[np.ndarray, "windows bands 4"], windows: Windows) -> Float[np.ndarray, "series bands 4"]:
    """Sums over the windows of each series."""
    return sums.reshape(len(windows.series), -1, *sums.shape[1:]).sum(axis=1)
