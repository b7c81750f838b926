"""One table of files and what they mean, run through the entry of every verb that takes a file of series."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rankscope.compress.calibration.sources import calibration_set
from rankscope.errors import DataError
from rankscope.series import Columns, Series, read_series
from rankscope.series.signals import corpus
from rankscope.train.data.pool import read_pool
from rankscope_eval import forecast_file, forecast_stream
from rankscope_eval.forecasters import Forecaster
from rankscope_eval.sources import LoadedSuite
from rankscope_eval.suites import Suite, Task

Found = tuple[str | None, str | None, np.ndarray]
"""Id, start and values of a series."""
_ = np.nan
REPEATED, OFF_GRID, NO_DATE, NO_FREQ = "twice", "does not follow", "is not a date", r"give freq \(--freq\)"


@dataclass(frozen=True)
class Case:
    """A file; the values of its series, or what refuses it; where it begins; and what streams refuse about it."""

    text: str
    means: dict[str, list[float]] | str
    start: str | None = None
    streams: str = ""
    name: str = "x.csv"


WIDE = "has one column per series"
BACK = "comes back after other series"


def lists(text: str, means: dict[str, list[float]] | str, start: str | None = None) -> Case:
    return Case(text, means, start, name="x.jsonl")


def wide(text: str, means: dict[str, list[float]] | str, start: str | None = None, **more: Any) -> Case:
    return Case(text, means, start, streams=WIDE, **more)


# In the texts a blank ends a line, and @ stands for 2020-01-0.
CASES = {
    # --- which column is what
    "wide": wide("date,a,b @1,1,5 @2,2,6 @3,3,7", {"a": [1, 2, 3], "b": [5, 6, 7]}, "2020-01-01"),
    "a column of years": wide("Year,flow 1871,1120 1872,1160 1873,963", {"flow": [1120, 1160, 963]}, "1871"),
    "a column of months": wide("month,y 2020-01,1 2020-02,2 2020-03,4", {"y": [1, 2, 4]}, "2020-01"),
    "quarters": wide("period,y 2020Q1,1 2020Q2,2 2020Q3,4", {"y": [1, 2, 4]}, "2020Q1"),
    "months without dashes": wide("time,y 202011,1 202012,2 202101,4", {"y": [1, 2, 4]}, "2020-11"),
    "days without dashes": wide("date,y 20200131,1 20200201,2 20200202,4", {"y": [1, 2, 4]}, "2020-01-31"),
    "text and truth values are no series": wide(
        "date,a,note,on @1,1,x,True @2,2,y,False @3,4,z,True", {"a": [1, 2, 4]}, "2020-01-01"
    ),
    "an index of dates": wide(",a @1,1 @2,2 @3,4", {"a": [1, 2, 4]}, "2020-01-01"),
    "an index of numbers": wide(",date,a 0,@1,1 1,@2,2 2,@3,4", {"a": [1, 2, 4]}, "2020-01-01"),
    "no time": wide("a,b 1,5 2,6 4,7", {"a": [1, 2, 4], "b": [5, 6, 7]}),
    "long": Case("item_id,date,y a,@1,1 a,@2,2 a,@3,4 b,@2,5 b,@3,7", {"a": [1, 2, 4], "b": [5, 7]}, "2020-01-01"),
    "long with an index": Case(",id,date,y 0,a,@1,1 1,a,@2,2 2,a,@3,4", {"a": [1, 2, 4]}, "2020-01-01"),
    "long without time": Case("id,sold a,1 a,2 b,7 b,3", {"a": [1, 2], "b": [7, 3]}),
    "names are texts": Case(
        "id,date,y 001,@1,1 001,@2,2 001,@3,4 1,@1,5 1,@2,6", {"001": [1, 2, 4], "1": [5, 6]}, "2020-01-01"
    ),
    "the target is known": Case("id,date,price,target a,@1,9,1 a,@2,9,2 a,@3,8,4", {"a": [1, 2, 4]}, "2020-01-01"),
    "two numeric columns": Case(
        "id,date,u,v a,@1,1,2 a,@2,2,3", r"\(u, v\); name the target column \(.*--target-column"
    ),
    "no numeric column": Case("date,name @1,a", "no numeric column; its columns are date, name"),
    "one name for two columns": Case("a,a 1,2 3,4", "two columns are named 'a'"),
    "lists": lists(
        '{"id":"a","start":"@1","freq":"D","target":[1,null,4]} '
        '{"id":"b","start":"2020-02","freq":"M","target":[5,"NaN",7]}',
        {"a": [1, _, 4], "b": [5, _, 7]},
        "2020-01-01",
    ),
    "lists without anything else": lists('{"target":[1,2,4]} {"target":[5,7]}', {"T0": [1, 2, 4], "T1": [5, 7]}),
    "two lists in a row": lists(
        '{"id":"a","start":"2020","freq":"D","u":[1,2],"v":[5,7]}', {"a_u": [1, 2], "a_v": [5, 7]}, "2020-01-01"
    ),
    # --- time, order and gaps
    "a missing day": wide("date,y @1,1 @2,2 @3,3 @5,5 @6,6", {"y": [1, 2, 3, _, 5, 6]}, "2020-01-01"),
    "a missing day in one series": Case(
        "id,date,y a,@1,1 a,@2,2 a,@3,3 b,@1,5 b,@3,7", {"a": [1, 2, 3], "b": [5, _, 7]}, "2020-01-01"
    ),
    "a missing day in a list of times": lists(
        '{"id":"a","timestamp":["@1","@2","@5"],"target":[1,2,5]}', {"a": [1, 2, _, _, 5]}, "2020-01-01"
    ),
    "rows in any order": wide("date,y @3,3 @1,1 @5,5 @2,2", {"y": [1, 2, 3, _, 5]}, "2020-01-01"),
    "times of a list in any order": lists(
        '{"id":"a","timestamp":["@3","@1","@2"],"target":[3,1,2]}', {"a": [1, 2, 3]}, "2020-01-01"
    ),
    "series by turns": Case(
        "id,date,y b,@2,6 b,@1,5 a,@1,1 a,@2,2 b,@3,7", {"b": [5, 6, 7], "a": [1, 2]}, "2020-01-01", streams=BACK
    ),
    "runs without values": wide(
        "date,a,b @1,,1 @2,,2 @3,3, @4,, @5,,NaN @6,6,null @7,7,NA",
        {"a": [_, _, 3, _, _, 6, 7], "b": [1, 2, _, _, _, _, _]},
        "2020-01-01",
    ),
    "a row without values": wide("a,b 1,5 , 2,6", {"a": [1, _, 2], "b": [5, _, 6]}),
    "empty lines are nothing": wide("date,y  @1,1  @2,2 @3,4  ", {"y": [1, 2, 4]}, "2020-01-01"),
    "steps": wide("time,y 0,1 10,2 20,3 40,5", {"y": [1, 2, 3, _, 5]}),
    "steps of several series": Case("id,time,y a,0,1 a,1,2 a,3,4 b,5,5 b,7,7", {"a": [1, 2, _, 4], "b": [5, _, 7]}),
    "steps of a list": lists('{"id":"a","time":[3,1,5,2],"target":[3,1,5,2]}', {"a": [1, 2, 3, _, 5]}),
    "hours, two of them missing": wide(
        "date,y @1T00:00,1 @1T01:00,2 @1T02:00,3 @1T05:00,4", {"y": [1, 2, 3, _, _, 4]}, "2020-01-01 00:00"
    ),
    "working days and a holiday": wide(
        "date,y @1,1 @2,2 @3,3 @6,6 @7,7 @8,8 2020-01-10,10 2020-01-13,13 2020-01-14,14",
        {"y": [1, 2, 3, 6, 7, 8, _, 10, 13, 14]},
        "2020-01-01",
    ),
    "ends of months": wide(
        "date,y 2020-01-31,1 2020-02-29,2 2020-03-31,3 2020-05-31,5", {"y": [1, 2, 3, _, 5]}, "2020-01"
    ),
    "one time zone": wide("date,y @1T00:00:00Z,1 @1T01:00:00Z,2 @1T02:00:00Z,4", {"y": [1, 2, 4]}, "2020-01-01 00:00"),
    "days over a change of clocks": wide(
        "date,y 2020-03-28T00:00:00+01:00,1 2020-03-29T00:00:00+01:00,2 2020-03-30T00:00:00+02:00,4",
        {"y": [1, 2, 4]},
        "2020-03-28",
    ),
    "month first": wide("date,y 1/12/2020,1 1/13/2020,2 1/14/2020,4", {"y": [1, 2, 4]}, "2020-01-12"),
    "day first": wide("date,y 12.01.2020,1 13.01.2020,2 14.01.2020,4", {"y": [1, 2, 4]}, "2020-01-12"),
    "a constant series": wide("date,a,b @1,3,1 @2,3,2 @3,3,4", {"a": [3, 3, 3], "b": [1, 2, 4]}, "2020-01-01"),
    "one row": wide("date,y @1,1", {"y": [1]}),
    "frequencies of their own": lists(
        '{"id":"a","start":"2020","freq":"h","target":[1,2]} {"id":"b","start":"2020","freq":"15min","target":[5,7]}',
        {"a": [1, 2], "b": [5, 7]},
        "2020-01-01 00:00",
    ),
    # --- refused
    "mixed frequencies": Case(
        "id,date,y a,@1,1 a,@2,2 a,@3,3 b,@1,5 b,@1T12:00,7", f"from line 5 on: series 'b' {OFF_GRID}|cannot be told"
    ),
    "off the grid": wide("date,y @1,1 @2,2 @3,3 @3T05:00,4", OFF_GRID),
    "a step off the others": wide("time,y 0,1 10,2 20,3 25,4", f"{OFF_GRID} its other steps at 25"),
    "a day twice": wide(
        "date,y @1,1 @2,2 @2,2 @3,3", f"column 'date' has 2020-01-02 .*{REPEATED}; several series in one column need"
    ),
    "a day twice in a series": Case("id,date,y a,@1,1 a,@2,2 a,@2,3", f"'a' has 2020-01-02 .*{REPEATED}"),
    "an hour twice when clocks change": wide(
        "date,y 2020-10-25T02:00:00+02:00,1 2020-10-25T02:00:00+01:00,2",
        f"{REPEATED}.*clocks go back: write times in UTC",
    ),
    "hours, and days as another series": Case(
        "id,date,y a,@1T00:00,1 a,@1T01:00,2 a,@1T02:00,3 b,@1,5 b,@2,7 b,@3,8",
        "series 'b' has no value within 24 steps of another by freq 'h', which is that of the first series",
    ),
    "times of the day": Case("time,y 00:00,1 01:00,2 02:00,4", "'00:00' in column 'time' has no date"),
    "semicolons": Case("id;date;y a;@1;1 a;@2;2", "columns are separated by ';': separate them by commas"),
    "far apart": wide("date,y 1900-01-01,1 1900-01-02,2 1900-01-03,2 @3,3", "4 values over"),
    "day or month": Case("date,y 01/02/2020,1 02/02/2020,2 03/02/2020,4", "may begin with the day or the month"),
    "no date": Case("id,date,y a,@1,1 a,@2,2 a,2020-13-77,4", f"line 4: .*'2020-13-77' {NO_DATE}"),
    "no date in a wide file": wide("date,y @1,1 @2,2 soon,4", f"line 4: 'soon' {NO_DATE}"),
    "seconds since 1970": wide("time,y 1577836800,1 1577840400,2 1577844000,3", f"'1577836800' {NO_DATE}"),
    "a fraction of time": wide("time,y 0.1,1 0.2,2", f"'0.1' {NO_DATE}"),
    "a start that is not a date": lists('{"id":"a","start":"soon","freq":"D","target":[1,2]}', f"'soon' {NO_DATE}"),
    "a frequency that is none": lists('{"id":"a","start":"2020","freq":"Z","target":[1,2]}', "freq 'Z' is not known"),
    "fewer times than values": lists('{"id":"a","timestamp":["@1","@2"],"target":[1,2,3]}', "2 times but 3 values"),
    "a text among numbers": Case("id,date,y a,@1,1 a,@2,x a,@3,4", "line 3: 'x' in series 'a' is not a number"),
    "a text in a wide file": wide("date,u,v @1,1,1 @2,2,x @3,3,3", "line 3: 'x' in series 'v' is not a number"),
    "a text in a list": lists(
        '{"id":"a","start":"2020","freq":"D","target":[1,2]} {"id":"b","start":"2020","freq":"D","target":["x"]}',
        "'b' is not a list of numbers",
    ),
    "a torn row": Case("id,date,y a,@1,1 a,@2 a,@3,4", "line 3 has 2 columns where the header has 3"),
    "no name": Case("id,date,y a,@1,1 ,@2,2 a,@3,4", "line 3 has no name of a series in column 'id'"),
    "a name twice": lists(
        '{"id":"a","start":"2020","freq":"D","target":[1,2]} {"id":"a","start":"2020","freq":"D","target":[1,2]}',
        "'a' appears more than once|item id, 'a', that was there before",
    ),
    "no values in a list": lists(
        '{"id":"a","start":"2020","freq":"D","target":[]} {"id":"b","start":"2020","freq":"D","target":[1]}',
        "'a' is empty",
    ),
    "an infinite value": Case("id,date,y a,@1,1 a,@2,inf a,@3,4", "'a' holds an infinite value"),
    "a value too large": Case(
        "id,date,y a,@1,1 a,@2,1e300 a,@3,4", r"'a' holds 1e\+300, which is beyond single precision"
    ),
    "nothing": Case("", "the file is empty"),
    "only a header": Case("id,date,y ", "holds no series: it holds no rows"),
    "no JSON": lists('{"target":[1', "line 1 has no JSON"),
    "no object": lists("[1,2]", "line 1 has no object"),
    "no Parquet": Case("hello", "cannot be read as parquet", name="x.parquet"),
    "no Arrow": Case("hello", "cannot be read as arrow", name="x.arrow"),
    "no format": Case("hello", "unknown extension", name="x.xls"),
}


def written(case: Case) -> str:
    return case.text.replace(" ", "\n").replace("@", "2020-01-0")


def spy() -> tuple[Forecaster, list[dict[str, Any]]]:
    """A forecaster that keeps what it is given."""
    from gluonts.model.forecast import QuantileForecast

    seen: list[dict[str, Any]] = []

    def run(entries: Any, horizon: int, season: int, levels: Any) -> Any:
        seen.extend(entries)
        keys = [*map(str, levels), "mean"]
        return [QuantileForecast(np.ones((1 + len(levels), horizon)), e["start"], keys) for e in entries]

    return Forecaster("spy", run), seen


def by_forecast(path: Path, freq: str | None, columns: Columns | None = None) -> Iterator[Found]:
    model, seen = spy()
    forecast_file(model, path, 1, freq=freq, columns=columns)
    return ((one["item_id"], str(one["start"]), one["target"]) for one in seen)


def by_stream(path: Path, freq: str | None, columns: Columns | None = None) -> Iterator[Found]:
    model, seen = spy()
    forecast_stream(model, path, 1, path.parent / "out", freq=freq, columns=columns, chunk=2, force=True)
    return ((one["item_id"], str(one["start"]), one["target"]) for one in seen)


def by_eval(path: Path, freq: str | None, columns: Columns | None = None) -> Iterator[Found]:
    names = {} if columns is None else {f"{role}_column": name for role, name in vars(columns).items()}
    task = Task("t", 1, 0, file=(path.name,), freq=freq, **names)
    series = LoadedSuite(Suite("s", (task,)), path.parent).series(task)
    return ((one.item_id, str(one.start), one.target) for one in series)


def by_pretrain(path: Path, freq: str | None, columns: Columns | None = None) -> Iterator[Found]:
    pool = read_pool([path], 1, columns, freq)
    return ((None, None, values) for values in np.split(pool.values, pool.starts[1:-1]))


def by_calibrate(path: Path, freq: str | None, columns: Columns | None = None) -> Iterator[Found]:
    made = calibration_set(path, context=20, horizon=1, columns=columns, freq=freq)
    return ((None, None, row) for row in np.concatenate([made.context, made.future], axis=1))


def by_flow(path: Path, freq: str | None, columns: Columns | None = None) -> Iterator[Found]:
    longest = max(len(one) for one in read_series(path, freq=freq, columns=columns, dated=False))
    drawn = corpus("user", 40, longest, file=path, columns=columns, freq=freq)  # again and again
    rows = {str(row): row for row in drawn.numpy()}
    return ((None, None, rows[key]) for key in sorted(rows))


DATED = {"forecast": by_forecast, "forecast --out": by_stream, "eval": by_eval}
UNDATED = {"pretrain, heal, synth": by_pretrain, "calibrate, compress": by_calibrate, "flow, embed": by_flow}
VERBS: dict[str, Callable[..., Iterator[Found]]] = {**DATED, **UNDATED}


def wanted(case: Case, verb: str) -> list[list[float]]:
    """The values that a verb uses of a file."""
    assert isinstance(case.means, dict)
    rows = [np.array(values, dtype=float) for values in case.means.values()]
    if verb.startswith("pretrain"):  # constant series teach nothing
        rows = [row for row in rows if np.nanmin(row) < np.nanmax(row)]
    elif verb.startswith("calibrate"):  # what lies before the first and behind the last observation is not a history
        cut = [row[np.flatnonzero(~np.isnan(row))[0] : np.flatnonzero(~np.isnan(row))[-1] + 1] for row in rows]
        rows = [np.r_[[np.nan] * (21 - len(row)), row] for row in cut if len(row) > 1]
    elif verb.startswith("flow"):
        longest = max(map(len, rows))
        rows = sorted((row for row in rows if len(row) == longest), key=lambda row: str(np.float32(row)))
    return [row.tolist() for row in rows]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", CASES)
def test_a_file_means_the_same_to_every_verb(tmp_path: Path, name: str, verb: str) -> None:
    case = CASES[name]
    path = tmp_path / case.name
    path.write_text(written(case))
    refused = case.streams if verb == "forecast --out" and case.streams else case.means
    refused = refused if isinstance(refused, str) else ""
    freq = None
    if not refused and verb in DATED and case.start is None:
        with pytest.raises(DataError, match=NO_FREQ):
            list(VERBS[verb](path, None))
        freq = "D"
    if not refused and not wanted(case, verb):
        refused = "to train on|to calibrate on"
    if refused:
        with pytest.raises(DataError, match=refused) as caught:
            list(VERBS[verb](path, freq))
        assert case.name in str(caught.value)
        assert "\n" not in str(caught.value)
        return
    found = list(VERBS[verb](path, freq))
    np.testing.assert_equal([values.tolist() for _, _, values in found], wanted(case, verb))
    if verb in DATED:
        assert isinstance(case.means, dict)
        assert [key for key, _, _ in found] == list(case.means)
        if case.start is not None:
            assert re.match(case.start, found[0][1])


@pytest.mark.parametrize("verb", VERBS)
def test_names_of_columns_and_a_frequency_mean_the_same_to_every_verb(tmp_path: Path, verb: str) -> None:
    """The first series has a value per week: the frequency inferred from it is not the second one's."""
    path = tmp_path / "x.csv"
    weeks, days = pd.date_range("2024-01-01", periods=3, freq="7D"), pd.date_range("2024-01-01", periods=15).delete(2)
    parts = [pd.DataFrame({"shop": "a", "day": weeks}), pd.DataFrame({"shop": "b", "day": days})]
    frame = pd.concat(parts).assign(sold=lambda rows: np.arange(1.0, len(rows) + 1), price=7.0)
    frame.to_csv(path, index=False)
    names = Columns("shop", "day", "sold")
    with pytest.raises(DataError, match="several numeric columns"):
        list(VERBS[verb](path, "D", Columns("shop", "day")))
    with pytest.raises(DataError, match=r"'b' does not follow freq 'W.* that of the first series: give freq"):
        list(VERBS[verb](path, None, names))
    found = [values[~np.isnan(values)].tolist() for _, _, values in VERBS[verb](path, "D", names)]
    sizes = [len(values) for _, _, values in VERBS[verb](path, "D", names)]
    assert sorted(found, key=len) == [[1, 2, 3], list(range(4, 18))]
    assert set(sizes) == ({21} if verb.startswith("calibrate") else {15})


def test_a_series_without_a_number_is_refused_but_by_forecasts(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("id,date,y\na,2020-01-01,1\na,2020-01-02,2\na,2020-01-03,4\nb,2020-01-01,\nb,2020-01-02,")
    for verb, read in VERBS.items():
        if verb.startswith("forecast"):
            assert [key for key, _, _ in read(path, None)] == ["a"]
        else:
            with pytest.raises(DataError, match="'b' holds no number"):
                read(path, None)
    assert forecast_file("naive", path, 1)["mean"].isna().tolist() == [False, True]


def test_a_table_of_the_lab_is_the_wide_layout(tmp_path: Path) -> None:
    from rankscope_lab.data.table import read_table

    path = tmp_path / "x.csv"
    path.write_text("date,a,b\n2020-01-02,2,6\n2020-01-01,1,5\n2020-01-03,4,7")  # in any order
    found = read_table(path)
    assert found.columns == ("a", "b")
    np.testing.assert_array_equal(found.values, np.stack([one.target for one in read_series(path)], axis=1))


@pytest.mark.parametrize("format", ["parquet", "arrow", "jsonl"])
@pytest.mark.parametrize("name", ["wide", "a column of years", "long", "steps", "names are texts", "an index of dates"])
def test_formats_agree_with_csv(tmp_path: Path, write_table: Any, name: str, format: str) -> None:
    (tmp_path / "x.csv").write_text(written(CASES[name]))
    frame = pd.read_csv(tmp_path / "x.csv", dtype={"id": str}).rename(columns={"Unnamed: 0": ""})
    path = write_table(frame, tmp_path / f"y.{format}")

    def content(series: list[Series]) -> list[Any]:
        return [(one.item_id, str(one.start), one.target.tolist()) for one in series]

    found = content(read_series(path, dated=False))
    np.testing.assert_equal(found, content(read_series(tmp_path / "x.csv", dated=False)))
