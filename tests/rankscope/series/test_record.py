import warnings

import numpy as np
import pandas as pd
import pytest

from rankscope.errors import DataError
from rankscope.series import Series
from rankscope.series.frequency import infer_freq, period, period_freq, quiet, seasonality
from rankscope.series.record import check_series

OFFSETS = ["h", "15min", "30min", "s", "D", "B", "W-SUN", "W-WED", "ME", "MS", "QE", "QS", "QE-NOV", "YE", "YS", "BME"]


@pytest.mark.parametrize("offset", OFFSETS)
def test_frequency_of_timestamps_is_the_one_pandas_gives_their_periods(offset: str) -> None:
    stamps = pd.date_range("2019-12-31", periods=40, freq=offset)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        published = stamps.to_period()[0]  # how chronos-forecasting's script finds it
        ours = period(stamps[0], infer_freq(stamps), "here")
        assert ours == pd.Period(stamps[0], freq=published.freqstr)
    assert seasonality(ours.freqstr) == seasonality(published.freqstr)


@pytest.mark.parametrize(
    ("old", "new"), [("H", "h"), ("T", "min"), ("S", "s"), ("M", "ME"), ("Q", "QE"), ("A", "YE"), ("A-DEC", "YE-DEC")]
)
def test_old_and_new_spellings_are_one_frequency(old: str, new: str) -> None:
    assert pd.Period("2020-05-05", freq=period_freq(old)) == pd.Period("2020-05-05", freq=period_freq(new))


@pytest.mark.parametrize("bad", ["fortnight", "", "0h", "12", "X", "M-"])
def test_an_unknown_frequency_is_named(bad: str) -> None:
    with pytest.raises(DataError, match="is not known: use one of s, min, h"):
        period_freq(bad)


@pytest.mark.parametrize(("freq", "season"), [("h", 24), ("D", 1), ("W-SUN", 1), ("M", 12), ("Q-DEC", 4), ("B", 5)])
def test_season_is_that_of_gluonts(freq: str, season: int) -> None:
    assert seasonality(freq) == season


@pytest.mark.parametrize("freq", ["h", "D", "W-MON", "M", "Q", "Y"])
def test_a_gap_does_not_hide_the_frequency(freq: str) -> None:
    stamps = pd.period_range("2015-01-05", periods=30, freq=freq).to_timestamp()
    assert period_freq(infer_freq(stamps.delete([7, 8]))).split("-")[0] == freq.split("-")[0]


def test_working_days_with_holidays_are_working_days() -> None:
    stamps = pd.bdate_range("2024-01-01", periods=60).delete([0, 20, 41])
    assert infer_freq(stamps) == "B"


def test_a_date_that_is_none_is_named() -> None:
    with pytest.raises(DataError, match="x: 'soon' is not a date"):
        period("soon", "D", "x")


def test_equal_instants_in_two_zones_have_the_periods_of_their_own_days() -> None:
    stamp = pd.Timestamp("2024-01-01 23:30", tz="UTC")
    for zone, day in (("UTC", "2024-01-01"), ("Europe/Berlin", "2024-01-02"), ("America/Lima", "2024-01-01")):
        assert period(stamp.tz_convert(zone), "D", "x") == pd.Period(day, "D")


WITHIN = [
    ("2024-01-01 00:30", "h"),
    ("2024-01-01 00:07", "15min"),
    ("2024-01-01 00:00:00.25", "s"),
    ("2024-01-01 12:00", "D"),
    ("2024-01-01 12:00", "B"),
    ("2024-01-07 12:00", "W-SUN"),
    ("2024-01-31 12:00", "ME"),
    ("2024-03-31 12:00", "QE"),
    ("2020-02-01", "QS-FEB"),
    ("2020-02-29", "QE-NOV"),
    ("2019-07-01", "YS-JUL"),
    ("2019-06-30", "YE-JUN"),
    ("2020-02-15 06:00", pd.DateOffset(months=1)),
    ("2020-02-15", pd.DateOffset(months=3)),
    ("2020-03-15", pd.DateOffset(years=1)),
]


@pytest.mark.filterwarnings("ignore:Period with BDay")
@pytest.mark.parametrize(
    ("first", "offset"),
    [
        *(("2020-02-01", one) for one in ("h", "D", "MS", "ME", "QE", "QS", "YE", "YS", "W-SAT", "W-SUN", "15min")),
        *WITHIN,
    ],
)
def test_forecast_times_continue_the_source(first: str, offset: str | pd.DateOffset) -> None:
    stamps = pd.date_range(first, periods=12, freq=offset)
    start = period(stamps[0], infer_freq(stamps), "x")
    series = Series("a", start, np.arange(8.0), stamps[0])
    assert series.timestamps(8, 4) == list(stamps[8:])


@pytest.mark.parametrize(
    ("day", "freq"), [(29, "M"), (30, "M"), (31, "M"), (30, "2M"), (30, "Q"), (31, "Q"), (30, "Y")]
)
def test_days_that_a_month_has_not_are_its_last(day: int, freq: str) -> None:
    months = [stamp.start_time for stamp in pd.period_range("2023-01", periods=12, freq=freq)]
    stamps = [one.replace(day=min(day, one.days_in_month)) for one in months]
    assert Series("a", pd.Period("2023-01", freq), np.arange(8.0), stamps[0]).timestamps(0, 12) == stamps


@pytest.mark.parametrize("stamp", [None, pd.Timestamp("2261-12-15"), pd.Timestamp("2261-12-31")])
def test_forecasts_beyond_the_last_timestamp_are_refused(stamp: pd.Timestamp | None) -> None:
    series = Series("a", pd.Period("2261-12-01", "M"), np.arange(3.0), stamp)
    with pytest.raises(DataError, match=r"'a': its value number 15 from 2261-12 .* end in 2262: give fewer steps"):
        series.timestamps(3, 12)


def test_forecasts_before_the_first_timestamp_are_told_to_begin_later() -> None:
    series = Series("a", pd.Period("1500", "Y"), np.arange(30.0))
    with pytest.raises(DataError, match="'a' begins at 1500, and timestamps in 1677: give a later start"):
        series.timestamps(30, 1)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([], "holds no series"),
        ([[]], "'0' is empty"),
        ([[np.nan, np.nan]], "holds no number"),
        ([[1.0, np.inf]], "infinite"),
    ],
)
def test_unusable_series_are_refused(targets: list, message: str) -> None:
    series = [Series(str(i), pd.Period("2020", "D"), np.array(t, float)) for i, t in enumerate(targets)]
    with pytest.raises(DataError, match=message):
        check_series(series, "here")


def test_a_repeated_id_is_named() -> None:
    one = Series("twin", pd.Period("2020", "D"), np.ones(3))
    with pytest.raises(DataError, match="'twin' appears more than once"):
        check_series([one, one], "here")


@pytest.mark.parametrize(
    ("freq", "stamp"),
    [
        *(("D", "2020-01-30 09:30"), ("h", "2020-01-31 10:20"), ("W-SUN", "2020-01-29"), ("B", "2020-01-31 16:00")),
        *(("M", "2020-01-31"), ("M", "2020-01-30"), ("Q-DEC", "2020-03-30"), ("Y-DEC", "2020-02-29 12:00")),
    ],
)
def test_the_last_values_keep_their_times(freq: str, stamp: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = Series("a", pd.Period(stamp, freq), np.arange(40.0), pd.Timestamp(stamp))
        expected = whole.timestamps(40, 3)
        for kept in (39, 38, 12, 1):
            assert whole.last(kept).timestamps(kept, 3) == expected
        assert whole.last(25).last(7).timestamps(7, 3) == expected


@pytest.mark.parametrize(
    "target",
    [
        np.ma.masked_array([1.0, 1e6, 3.0], mask=[0, 1, 0]),
        pd.Series([1.0, None, 3.0], dtype="Float64"),
        pd.array([1, None, 3], dtype="Int64"),
        np.array([1, None, 3], dtype=object),
        [1.0, None, 3.0],
    ],
)
def test_masked_and_missing_values_become_nan(target: object) -> None:
    one = Series("a", pd.Period("2020", "D"), target)  # type: ignore[arg-type]
    np.testing.assert_array_equal(one.target, [1.0, np.nan, 3.0])
    assert one.target.dtype == float


@pytest.mark.parametrize(
    "target",
    [
        np.zeros((2, 3)),
        ["a", "b"],
        np.array([[1], [2]], dtype=object),
        None,
        3.0,
        [1j],
        np.array(["2020-01-01"], dtype="datetime64[ns]"),
    ],
)
def test_a_target_of_another_form_is_refused(target: object) -> None:
    with pytest.raises(DataError, match=r"'a': target has to hold numbers along one axis"):
        Series("a", pd.Period("2020", "D"), target)  # type: ignore[arg-type]


@pytest.mark.parametrize("freq", ["YE-DEC", "QE-DEC", "M", "W-SUN", "B", "D", "h", "15min", "s"])
def test_what_ends_in_time_passes_without_its_timestamps(freq: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact for all that ends about the last timestamp; elsewhere ordinals are compared, for every series in a file."""
    with quiet():
        latest = pd.Period(pd.Timestamp.max, period_freq(freq))
    for early in range(-3, 12):
        with quiet():
            series = Series("a", latest - early, np.arange(5.0))
        try:
            series.timestamps(7, 1)
        except DataError:
            with pytest.raises(DataError, match="too late"):
                series.check_times(3)
        else:
            series.check_times(3)
    monkeypatch.setattr(Series, "timestamps", None)
    with quiet():
        Series("a", latest - 40, np.arange(5.0)).check_times(3)
