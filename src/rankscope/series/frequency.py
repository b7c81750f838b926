"""Frequencies: pandas aliases, periods, seasonality and inference from timestamps."""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rankscope.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

PERIODS = ("s", "min", "h", "D", "B", "W", "M", "Q", "Y")

# Offset aliases (pandas 1, 2 and 3) → period aliases. Start-anchored and business variants map to the same periods.
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
    **dict.fromkeys(("ME", "MS", "BM", "BME", "BMS", "EOM", "m"), "M"),
    **dict.fromkeys(("QE", "QS", "BQ", "BQE", "BQS", "q"), "Q"),
    **dict.fromkeys(("YE", "YS", "A", "AS", "BA", "BAS", "BY", "BYE", "BYS", "y", "a"), "Y"),
}
_KEEPS_ANCHOR = {"W", "Q", "QE", "Y", "YE", "A"}
_WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_ANCHORS = {"W": _WEEKDAYS, "Q": _MONTHS, "Y": _MONTHS}
_DIGITS = 9
"""Of the largest multiple: beyond, pandas cannot count."""
_NAME = re.compile(r"^(\d*)([A-Za-z]+)(?:-([A-Z]{3}))?$")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress pandas' deprecation warnings on business-day periods and period aliases as offsets."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


@lru_cache(maxsize=256)
def timed_ordinals(freq: str) -> tuple[int, int]:
    """Ordinals of the first and the last period of a frequency that a timestamp lies in."""
    import pandas as pd

    with quiet():
        return pd.Period(pd.Timestamp.min, freq).ordinal, pd.Period(pd.Timestamp.max, freq).ordinal


@lru_cache(maxsize=256)
def period_freq(freq: str) -> str:
    """Return the period alias of a frequency in any pandas spelling.

    >>> [period_freq(f) for f in ("H", "15T", "MS", "QE-DEC", "YE", "W-SUN")]
    ['h', '15min', 'M', 'Q-DEC', 'Y', 'W-SUN']

    Raises:
        DataError: the frequency is not one of pandas'.
    """
    match = _NAME.match(str(freq))
    base = _PERIOD_OF.get(match[2]) if match else None
    if match is None or base is None or (match[1] and not match[1].strip("0")):
        raise DataError(f"freq {freq!r} is not known: use one of {', '.join(PERIODS)}, or a multiple such as 15min.")
    if len(match[1].lstrip("0")) > _DIGITS:
        raise DataError(f"freq {freq!r} is too long a step: use a longer unit, one of {', '.join(PERIODS)}.")
    if match[3] and match[3] not in _ANCHORS.get(base, ()):
        known = f"one of {', '.join(_ANCHORS[base])}" if base in _ANCHORS else "left out"
        raise DataError(f"freq {freq!r}: {match[3]} cannot stand behind {match[2]}; it has to be {known}.")
    anchor = f"-{match[3]}" if match[3] and match[2] in _KEEPS_ANCHOR else ""
    times = "" if match[1] in ("", "1") else match[1]
    return f"{times}{base}{anchor}"


def period(timestamp: Any, freq: str, where: str) -> pd.Period:
    """Return the period of ``freq`` that contains ``timestamp``, in local time if it has a zone.

    Raises:
        DataError: the timestamp cannot be parsed, or the frequency is unknown.
    """
    import pandas as pd

    name = period_freq(freq)
    if getattr(timestamp, "tzinfo", None) is not None:  # the cache takes equal instants of two zones for one
        timestamp = timestamp.replace(tzinfo=None)
    try:
        start = _period(timestamp, name)
    except (ValueError, TypeError, OverflowError):
        start = pd.NaT
    if start is pd.NaT:
        raise DataError(f"{where}: {timestamp!r} is not a date; write ISO dates such as 2024-01-31.")
    return start


@lru_cache(maxsize=4096, typed=True)
def _period(timestamp: Any, name: str) -> pd.Period:
    """Parse a timestamp; cached, since parsing is slow and many series share a start."""
    import pandas as pd

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `B` weekdays and old aliases warn but are correct
        return pd.Period(timestamp, freq=name)


@lru_cache(maxsize=256)
def seasonality(freq: str) -> int:
    """Return the season length of a frequency as in GluonTS: 24 for hours, 12 for months, 1 for days and weeks.

    >>> [seasonality(f) for f in ("h", "D", "M", "Q", "B", "15min", "Y")]
    [24, 1, 12, 4, 5, 96, 1]
    """
    from gluonts.time_feature.seasonality import get_seasonality

    log = logging.getLogger(get_seasonality.__module__)
    before, log.disabled = log.disabled, True  # it warns that three days, say, have no season
    try:
        with quiet():
            return int(get_seasonality(period_freq(freq)))
    finally:
        log.disabled = before


def infer_freq(stamps: pd.DatetimeIndex) -> str | None:
    """Infer the period alias of sorted timestamps: exact for regular ones, else from the most common step."""
    import pandas as pd

    with quiet():
        try:
            regular = pd.infer_freq(stamps)
            if regular is not None:
                return period_freq(regular)
        except (ValueError, TypeError):  # too few timestamps, or a pattern without a period, such as every third Friday
            pass
    if len(stamps) < 2:
        return None
    step = pd.Series(stamps.as_unit("us")).diff().mode()[0]  # in nanoseconds a gap of 292 years overflows
    for low, high, name in ((28, 31, "M"), (89, 92, "Q"), (365, 366, "Y")):
        if pd.Timedelta(days=low) <= step <= pd.Timedelta(days=high):
            return name
    if step == pd.Timedelta(days=1) and len(stamps) > 7 and (stamps.dayofweek < 5).all():
        return "B"  # business days with holidays
    if step == pd.Timedelta(days=7):
        return f"W-{stamps[0].day_name()[:3].upper()}"
    try:
        return period_freq(pd.tseries.frequencies.to_offset(step).freqstr)
    except DataError:
        return None
