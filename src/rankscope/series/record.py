"""Record of a time series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rankscope.errors import DataError
from rankscope.series.frequency import quiet, timed_ordinals

if TYPE_CHECKING:
    import pandas as pd

Entry = dict[str, Any]
"""GluonTS data entry: ``{"item_id": …, "start": Period, "target": array}``."""
LARGEST = float(np.finfo(np.float32).max)
"""Largest float32; models compute in single precision."""


@dataclass(frozen=True)
class Series:
    """Univariate series: id, period of the first value, and values (NaN = missing).

    ``start`` carries the frequency and is NaT if unknown. ``stamp`` is the original timestamp of the first value, or of
    an earlier one, anywhere within its period. ``target`` takes anything of one axis that pandas reads as numbers;
    masked and missing values become NaN.

    Raises:
        DataError: ``start`` or ``target`` is no such thing.
    """

    item_id: str
    start: pd.Period
    target: np.ndarray
    stamp: pd.Timestamp | None = None

    def __post_init__(self) -> None:
        import pandas as pd

        if not isinstance(self.start, pd.Period) and self.start is not pd.NaT:
            raise DataError(
                f"series {self.item_id!r}: start has to be a pandas Period, with the frequency, such as "
                "pd.Period('2024-01-31', 'M'), or NaT."
            )
        if type(self.target) is np.ndarray and self.target.ndim == 1 and self.target.dtype.kind in "fiu":
            return
        try:
            cells = pd.Series(self.target)
            if np.ndim(self.target) != 1 or cells.dtype.kind in "mMc":
                raise TypeError
            values = cells.to_numpy(dtype=float, na_value=np.nan)
        except (TypeError, ValueError) as error:
            raise DataError(f"series {self.item_id!r}: target has to hold numbers along one axis.") from error
        object.__setattr__(self, "target", values)

    def __len__(self) -> int:
        """Number of time steps."""
        return len(self.target)

    def timestamps(self, first: int, steps: int) -> list[pd.Timestamp]:
        """Return the timestamps of ``steps`` values from index ``first``, at ``stamp``'s place within the period.

        The place is an offset from the period's start; in months, quarters and years it is a day of the month, clipped
        to the month's last, or the last day if ``stamp`` is on one.

        Raises:
            DataError: one of them is outside the years 1677 to 2262, which nanoseconds reach.
        """
        import pandas as pd

        try:
            return self._timestamps(first, steps)
        except pd.errors.OutOfBoundsDatetime as error:
            if self.start.year < pd.Timestamp.min.year:
                raise DataError(
                    f"series {self.item_id!r} begins at {self.start}, and timestamps in {pd.Timestamp.min.year}: give "
                    "a later start."
                ) from error
            raise DataError(
                f"series {self.item_id!r}: its value number {first + steps:,} from {self.start} with frequency "
                f"{self.start.freqstr} is too late for timestamps, which end in {pd.Timestamp.max.year}: give fewer "
                "steps (--horizon), an earlier start or another freq (--freq)."
            ) from error

    def check_times(self, steps: int) -> None:
        """Refuse a series of which one of the ``steps`` values after its end has no timestamp.

        Raises:
            DataError: as `timestamps` says.
        """
        earliest, latest = timed_ordinals(self.start.freqstr)
        last = self.start.ordinal + (len(self) + steps) * self.start.freq.n
        if not earliest < self.start.ordinal <= last < latest:
            self.timestamps(len(self) + steps - 1, 1)

    def _timestamps(self, first: int, steps: int) -> list[pd.Timestamp]:
        import pandas as pd
        from pandas.tseries.offsets import DateOffset, MonthEnd, QuarterEnd, YearEnd

        starts = [(self.start + step).start_time for step in range(first, first + steps)]
        if self.stamp is None:
            return starts
        stamp = self.stamp.as_unit("ns")
        with quiet():
            begin = pd.Period(stamp, freq=self.start.freq).start_time
        if not isinstance(self.start.freq, (MonthEnd, QuarterEnd, YearEnd)):
            return [one + (stamp - begin) for one in starts]
        months = [12 * (one.year - begin.year) + one.month - begin.month for one in starts]
        return [stamp + (MonthEnd(n) if stamp.is_month_end else DateOffset(months=n)) for n in months]

    def last(self, n: int | None) -> Series:
        """Return the last ``n`` values at most; all if ``n`` is None."""
        skipped = max(0, len(self) - (len(self) if n is None else n))
        return replace(self, start=self.start + skipped, target=self.target[skipped:]) if skipped else self

    @property
    def entry(self) -> Entry:
        """Convert to a GluonTS data entry."""
        return {"item_id": self.item_id, "start": self.start, "target": self.target}


def check_series(series: Sequence[Series], where: str, *, numbers: bool = True) -> None:
    """Validate a set of series: not empty, unique ids, valid values.

    Args:
        series: series to validate.
        where: prefix of error messages.
        numbers: reject series without any number.

    Raises:
        DataError: with ``where`` and the id of the series.
    """
    for one in series:
        if not isinstance(one, Series):
            raise DataError(f"{where}: a {type(one).__name__} is not a Series (read_series makes them of files).")
        check_values(one, where)
    check_set(series, where, numbers=numbers)


def check_set(series: Sequence[Series], where: str, *, numbers: bool = True) -> None:
    """Validate what `check_values` cannot see of one series: there are some, their ids are unique, and hold numbers.

    Raises:
        DataError: with ``where`` and the id of the series.
    """
    if not series:
        raise DataError(f"{where} holds no series.")
    name, count = Counter(one.item_id for one in series).most_common(1)[0]
    if count > 1:
        raise DataError(f"{where}: item id {name!r} appears more than once; ids have to be unique.")
    nothing = next((one for one in series if numbers and np.isnan(one.target).all()), None)
    if nothing is not None:
        raise DataError(f"{where}: series {nothing.item_id!r} holds no number (all values are missing).")


def check_values(one: Series, where: str, *, dated: bool = True) -> None:
    """Reject an empty series, infinite or too large values and, if ``dated``, a missing frequency.

    Raises:
        DataError: with ``where`` and the id of the series.
    """
    import pandas as pd

    if len(one) == 0:
        raise DataError(f"{where}: series {one.item_id!r} is empty.")
    large = np.flatnonzero(np.abs(one.target) > LARGEST)
    if len(large):
        value = one.target[large[0]]
        what = f"{value:g}, which is beyond single precision" if np.isfinite(value) else "an infinite value"
        raise DataError(f"{where}: series {one.item_id!r} holds {what}; write NaN where one is missing.")
    if dated and one.start is pd.NaT:
        fix = "one time does not tell it: give freq (--freq), such as D"
        if one.stamp is None:
            fix = "no times tell it: name the time column (time_column, --time-column) or give freq (--freq)"
        raise DataError(f"{where}: series {one.item_id!r} states no frequency, and {fix}.")
