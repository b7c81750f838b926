"""The one record of a time series, and the frequency names that it understands."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from rankscope.errors import DataError, OptionError

if TYPE_CHECKING:
    import pandas as pd

Entry = dict[str, Any]
"""What GluonTS calls a data entry: ``{"item_id": …, "start": Period, "target": array}``."""

PERIODS = ("s", "min", "h", "D", "B", "W", "M", "Q", "Y")

# Offset names (pandas 1, 2 and 3) → period names. A start-anchored or business variant counts the same
# periods.
_PERIOD_OF = {
    **{name: name for name in (*PERIODS, "ms", "us", "ns")},
    "H": "h",
    "T": "min",
    "S": "s",
    "L": "ms",
    "U": "us",
    "N": "ns",
    "d": "D",
    "w": "W",
    "WEEKDAY": "D",
    **dict.fromkeys(("ME", "MS", "BM", "BME", "BMS", "SM", "SME", "SMS", "EOM", "m"), "M"),
    **dict.fromkeys(("QE", "QS", "BQ", "BQE", "BQS", "q"), "Q"),
    **dict.fromkeys(("YE", "YS", "A", "AS", "BA", "BAS", "BY", "BYE", "BYS", "y", "a"), "Y"),
}
_KEEPS_ANCHOR = {"W", "Q", "QE", "Y", "YE", "A"}
_NAME = re.compile(r"^(\d*)([A-Za-z]+)(?:-([A-Z]{3}))?$")


@dataclass(frozen=True)
class Series:
    """One univariate series: its name, the period of its first value, and all its values (NaN = missing).

    ``stamp`` is the time that the source gives the first value, which may lie anywhere in its period.
    """

    item_id: str
    start: pd.Period
    target: np.ndarray
    stamp: pd.Timestamp | None = None

    def __len__(self) -> int:
        """Number of time steps."""
        return len(self.target)

    def timestamps(self, first: int, steps: int) -> list[pd.Timestamp]:
        """Times of ``steps`` values from index ``first`` on, placed in their periods as ``stamp`` is."""
        periods = [self.start + step for step in range(first, first + steps)]
        if self.stamp is None or self.stamp == self.start.start_time:
            return [one.start_time for one in periods]
        if self.stamp.normalize() == self.start.end_time.normalize():
            return [one.end_time.normalize() for one in periods]
        return [one.start_time + (self.stamp - self.start.start_time) for one in periods]

    def last(self, n: int | None) -> Series:
        """The last ``n`` values at most; all of them without a number."""
        skipped = max(0, len(self) - (len(self) if n is None else n))
        return self if not skipped else Series(self.item_id, self.start + skipped, self.target[skipped:])

    @property
    def entry(self) -> Entry:
        """The series as a GluonTS data entry."""
        return {"item_id": self.item_id, "start": self.start, "target": self.target}


@lru_cache(maxsize=256)
def period_freq(freq: str) -> str:
    """Period name of a frequency written in any pandas spelling.

    >>> [period_freq(f) for f in ("H", "15T", "MS", "QE-DEC", "YE", "W-SUN")]
    ['h', '15min', 'M', 'Q-DEC', 'Y', 'W-SUN']

    Raises:
        DataError: the frequency is not one of pandas'.
    """
    match = _NAME.match(str(freq))
    base = _PERIOD_OF.get(match[2]) if match else None
    if match is None or base is None or match[1] == "0":
        raise DataError(f"freq {freq!r} is not known: use one of {', '.join(PERIODS)}, or a multiple such as 15min.")
    anchor = f"-{match[3]}" if match[3] and match[2] in _KEEPS_ANCHOR else ""
    times = "" if match[1] in ("", "1") else match[1]
    return f"{times}{base}{anchor}"


def period(timestamp: Any, freq: str, where: str) -> pd.Period:
    """Period of ``freq`` that holds ``timestamp``.

    Raises:
        DataError: the timestamp cannot be parsed, or the frequency is unknown.
    """
    import pandas as pd

    name = period_freq(freq)
    try:
        start = _period(timestamp, name)
    except (ValueError, TypeError, OverflowError):
        start = pd.NaT
    if start is pd.NaT:
        raise DataError(f"{where}: {timestamp!r} is not a date; write ISO dates such as 2024-01-31.")
    return start


@lru_cache(maxsize=4096, typed=True)
def _period(timestamp: Any, name: str) -> pd.Period:
    """Parse, which takes as long as the forecast of a short series; many series begin at one time."""
    import pandas as pd

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a weekday of `B` and old spellings warn and still count right
        return pd.Period(timestamp, freq=name)


@lru_cache(maxsize=256)
def seasonality(freq: str) -> int:
    """Season of a frequency as GluonTS has it: 24 for hours, 12 for months, and 1 for days and weeks.

    >>> [seasonality(f) for f in ("h", "D", "M", "Q", "B", "15min", "Y")]
    [24, 1, 12, 4, 5, 96, 1]
    """
    from gluonts.time_feature.seasonality import get_seasonality

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # period names are deprecated as offset names
        return int(get_seasonality(period_freq(freq)))


def infer_freq(stamps: pd.DatetimeIndex) -> str | None:
    """Period name of sorted timestamps: regular ones exactly, ones with gaps by their most common step."""
    import pandas as pd

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            regular = pd.infer_freq(stamps)
        except (ValueError, TypeError):
            regular = None
    if regular is not None:
        return period_freq(regular)
    if len(stamps) < 2:
        return None
    step = pd.Series(stamps).diff().mode()[0]
    for low, high, name in ((28, 31, "M"), (89, 92, "Q"), (365, 366, "Y")):
        if pd.Timedelta(days=low) <= step <= pd.Timedelta(days=high):
            return name
    if step == pd.Timedelta(days=1) and len(stamps) > 7 and (stamps.dayofweek < 5).all():
        return "B"  # working days with holidays
    if step == pd.Timedelta(days=7):
        return f"W-{stamps[0].day_name()[:3].upper()}"
    try:
        return period_freq(pd.tseries.frequencies.to_offset(step).freqstr)
    except DataError:
        return None


def check_series(series: Sequence[Series], where: str, *, numbers: bool = True) -> None:
    """Refuse an empty set, duplicated names and, unless ``numbers`` is false, a series without any number.

    Raises:
        DataError: naming ``where`` and the series.
    """
    if not series:
        raise DataError(f"{where} holds no series.")
    repeated = [name for name, count in Counter(one.item_id for one in series).items() if count > 1]
    if repeated:
        raise DataError(f"{where}: item id {repeated[0]!r} appears more than once; ids have to be unique.")
    for one in series:
        check_values(one, where)
        if numbers and not np.isfinite(one.target).any():
            raise DataError(f"{where}: series {one.item_id!r} holds no number (all values are missing).")


def check_values(one: Series, where: str) -> None:
    """Refuse a series of no steps, and one with an infinite value.

    Raises:
        DataError: naming ``where`` and the series.
    """
    if len(one) == 0:
        raise DataError(f"{where}: series {one.item_id!r} is empty.")
    if np.isinf(one.target).any():
        raise DataError(f"{where}: series {one.item_id!r} holds an infinite value; write NaN where one is missing.")


def check_horizon(horizon: int) -> int:
    """The horizon, refused unless it is a whole number of at least 1."""
    if isinstance(horizon, bool) or not isinstance(horizon, (int, np.integer)) or horizon < 1:
        raise OptionError(f"horizon {horizon!r} is not usable: give a whole number of steps, at least 1.")
    return int(horizon)
