"""Training, validation and test windows of a table: chronological split, scaling, look-back and horizon."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankscope.errors import DataError, OptionError, unknown_choice
from rankscope.series.frequency import quiet
from rankscope_lab.data.table import ETT, VariableTable

FIFTHS, MONTHS = "fifths", "months"
SPLITS = (FIFTHS, MONTHS)
"""Names of the splits; see `split_rows`."""
MONTH = 30
"""Days of a month in the split of the ETT tables."""
PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class Parts:
    """Row ranges of the three parts; later rows are unused."""

    train: range
    validation: range
    test: range

    def reaching_back(self, steps: int) -> Parts:
        """Extend validation and test ``steps`` rows into the past, so that look-backs overlap the previous part."""
        earlier = (range(max(part.start - steps, 0), part.stop) for part in (self.validation, self.test))
        return Parts(self.train, *earlier)


def split_rows(table: VariableTable, split: str) -> Parts:
    """Split rows chronologically.

    ``fifths``: test is the last ⌊T/5⌋ rows, validation as many before it, training the rest. ``months``: the four ETT
    tables have 12, 4 and 4 months of 30 days, their other rows are unused; any other table has its first ⌊0.7 T⌋ rows
    for training, its last ⌊0.2 T⌋ for testing, and what lies between for validation.

    Raises:
        OptionError: an unknown split.
        DataError: an ETT table of fewer than 20 months, or whose step does not divide a day.
    """
    if split not in SPLITS:
        raise OptionError(unknown_choice("split", split, SPLITS))
    rows = len(table.values)
    if split == FIFTHS:
        train, test = rows - 2 * (rows // 5), rows // 5
        validation = test
    elif set(table.columns) == set(ETT):
        month = MONTH * steps_per_day(table)
        if not month:
            raise DataError(f"{table.source}: its step does not divide a day, so there are no months of {MONTH} days.")
        train, validation, test = 12 * month, 4 * month, 4 * month
    else:
        train, test = rows * 7 // 10, rows // 5
        validation = rows - train - test
    if train + validation + test > rows:
        raise DataError(
            f"{table.source} has {rows:,} rows; 12, 4 and 4 months of its step are {train + validation + test:,}: "
            "give the whole ETT table, or use the split 'fifths'."
        )
    ends = np.cumsum([train, validation, test]).tolist()
    return Parts(range(ends[0]), range(ends[0], ends[1]), range(ends[1], ends[2]))


def steps_per_day(table: VariableTable) -> int:
    """Return the rows per 24 hours; 0 if the step does not divide a day."""
    with quiet():
        try:
            steps = pd.Timedelta(days=1) / pd.Timedelta(pd.tseries.frequencies.to_offset(table.freq))
        except (ValueError, TypeError):  # no step, or one of no fixed length
            return 0
    return int(steps) if steps == int(steps) else 0


class Windows:
    """All windows of a part, with stride 1, as views.

    Attributes:
        values: values of the part, rows × variables.
        lookback: look-back window in steps.
        horizon: forecast horizon in steps.
    """

    def __init__(self, values: Float[Tensor, "time variables"], lookback: int, horizon: int, name: str) -> None:
        if lookback < 1 or horizon < 1:
            raise OptionError(f"lookback and horizon must be at least 1, got {lookback} and {horizon}.")
        if len(values) < lookback + horizon:
            room = len(values) - lookback
            less = f"choose a horizon of at most {room:,}" if room > 0 else "look back less far"
            raise DataError(
                f"{name} has {len(values):,} rows, one window needs {lookback:,} to look back and {horizon:,} to "
                f"forecast: {less}, or give more data."
            )
        self.values, self.lookback, self.horizon = values, lookback, horizon
        self._all = values.unfold(0, lookback + horizon, 1)

    def __len__(self) -> int:
        """Rows − lookback − horizon + 1."""
        return len(self._all)

    def batch(
        self, at: Int[Tensor, " batch"]
    ) -> tuple[Float[Tensor, "batch lookback variables"], Float[Tensor, "batch horizon variables"]]:
        """Return look-backs and horizons of the windows starting at these rows."""
        both = self._all[at].transpose(1, 2)
        return both[:, : self.lookback], both[:, self.lookback :]


@dataclass(frozen=True)
class ForecastData:
    """Scaled and windowed data of a table.

    Attributes:
        name: of the table.
        columns: the variables.
        train: windows of the first part.
        validation: of the second.
        test: of the third.
        mean: of every variable over the training rows.
        std: likewise, divided by the number of rows.
        season: steps of 24 hours; 0 where a step does not divide a day.
        digest: of the table's columns and values.
    """

    name: str
    columns: tuple[str, ...]
    train: Windows
    validation: Windows
    test: Windows
    mean: Float[np.ndarray, " variables"]
    std: Float[np.ndarray, " variables"]
    season: int
    digest: str = ""

    def to(self, device: str) -> ForecastData:
        """Move to another device."""
        train, validation, test = (
            Windows(old.values.to(device), old.lookback, old.horizon, self.name)
            for old in (self.train, self.validation, self.test)
        )
        return replace(self, train=train, validation=validation, test=test)


def forecast_data(
    table: VariableTable, split: str, lookback: int, horizon: int, *, reach_back: bool = False
) -> ForecastData:
    """Standardise each variable by the training rows and build windows.

    Variables that are constant in the training part are set to 0, since they have no scale.

    Args:
        table: variables over time.
        split: ``fifths`` or ``months``, see `split_rows`.
        lookback: steps that a model sees.
        horizon: steps that it forecasts.
        reach_back: let look-backs of validation and test overlap the previous part.

    Raises:
        DataError: a part is shorter than one window.
    """
    parts = split_rows(table, split)
    known = table.values[parts.train.start : parts.train.stop]
    if not len(known):
        raise DataError(f"{table.source} has {len(table.values)} rows: none is left for training.")
    varies = known.max(0) > known.min(0)  # the deviation of a constant is seldom 0: its mean is rounded
    mean, std = known.mean(0), np.where(varies, known.std(0), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = (table.values - mean) / std
    values = torch.from_numpy(np.where(np.isfinite(scaled), scaled, 0.0).astype(np.float32))
    ranges = parts.reaching_back(lookback) if reach_back else parts
    shortest_first = sorted(PARTS, key=lambda part: len(getattr(ranges, part)))  # an error then names what fits all
    cut = {
        part: Windows(values[rows.start : rows.stop], lookback, horizon, f"the {part} part of {table.source}")
        for part in shortest_first
        for rows in (getattr(ranges, part),)
    }
    season, digest = steps_per_day(table), table.digest
    return ForecastData(table.name, table.columns, mean=mean, std=std, season=season, digest=digest, **cut)


def check_season(season: int, lookback: int) -> None:
    """Check that `seasonal_naive` is applicable.

    Raises:
        DataError: the season is longer than the look-back, or the table has none.
    """
    if season < 1:
        raise DataError("the table's step does not divide a day, so there is no season of 24 hours to repeat.")
    if season > lookback:
        raise DataError(f"a season of {season} steps does not fit into a look-back of {lookback}: lengthen it.")


def seasonal_naive(
    past: Float[Tensor, "batch lookback variables"], horizon: int, season: int
) -> Float[Tensor, "batch horizon variables"]:
    """Forecast each step with the value one season earlier.

    >>> seasonal_naive(torch.tensor([[[1.0], [2.0], [3.0]]]), 3, 2)[0, :, 0].tolist()
    [2.0, 3.0, 2.0]
    """
    check_season(season, past.shape[1])
    return past[:, -season:].repeat(1, -(-horizon // season), 1)[:, :horizon]
