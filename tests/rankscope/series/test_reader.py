import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import DataError
from rankscope.series import Columns, files, formats, read_series
from rankscope.series.reader import to_series
from rankscope.series.stream import open_stream

Write = Callable[[pd.DataFrame, Path], Path]
VALUES = {"a": [1.0, 0.1 + 0.2, np.nan, 4.0], "b": [10.0, 20.0, 30.0]}
STARTS = {"a": "2020-01-01", "b": "2021-05-01"}


def list_frame() -> pd.DataFrame:
    return pd.DataFrame(
        {"item_id": list(VALUES), "start": list(STARTS.values()), "freq": "M", "target": list(VALUES.values())}
    )


def long_frame() -> pd.DataFrame:
    parts = [
        pd.DataFrame({"item_id": key, "timestamp": pd.date_range(STARTS[key], periods=len(v), freq="MS"), "target": v})
        for key, v in VALUES.items()
    ]
    return pd.concat(parts).sample(frac=1, random_state=0)  # rows in any order


WRITTEN = [
    (key, pd.Period(STARTS[key], freq="M"), "float64", [repr(value) for value in values])
    for key, values in VALUES.items()
]


def content(series: list) -> list[tuple]:
    """Id, start, number format and values to the last bit (NaN equals NaN), in the order of the ids."""
    rows = [(one.item_id, one.start, str(one.target.dtype), [repr(x) for x in one.target.tolist()]) for one in series]
    return sorted(rows, key=lambda row: row[0])


@pytest.mark.parametrize("name", ["x.parquet", "x.jsonl", "x.arrow", "stream.arrow"])
def test_list_layout_is_read_exactly(tmp_path: Path, write_table: Write, name: str) -> None:
    assert content(read_series(write_table(list_frame(), tmp_path / name))) == WRITTEN


@pytest.mark.parametrize("name", ["x.parquet", "x.csv", "x.jsonl", "x.arrow", "stream.arrow"])
def test_long_layout_is_read_exactly(tmp_path: Path, write_table: Write, name: str) -> None:
    assert content(read_series(write_table(long_frame(), tmp_path / name))) == WRITTEN


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl", "arrow"])
def test_a_folder_is_read_as_one_file(tmp_path: Path, write_table: Write, ending: str) -> None:
    frame = long_frame()
    later = tmp_path / "x" / f"later.{ending}"  # as Spark calls its folders
    later.mkdir(parents=True)
    write_table(frame.iloc[3:], later / f"0.{ending}")
    write_table(frame.iloc[:3], tmp_path / "x" / f"1.{ending}")
    (tmp_path / "x" / "_SUCCESS").touch()
    (tmp_path / "x" / f".2.{ending}").write_text("what a writer left")
    (tmp_path / "x" / "notes.txt").touch()
    assert content(read_series(tmp_path / "x")) == WRITTEN


def test_errors_in_a_folder_name_the_file(tmp_path: Path, write_table: Write) -> None:
    write_table(long_frame(), tmp_path / "0.csv")
    (tmp_path / "1.csv").write_text("item_id,timestamp,value\nc,2020-01-01,1\n")
    with pytest.raises(DataError, match=r"1\.csv: column 'target' is not in every file"):
        read_series(tmp_path)
    write_table(list_frame(), tmp_path / "1.csv").rename(tmp_path / "1.parquet")
    with pytest.raises(DataError, match=r"several formats, such as 0\.csv and 1\.parquet"):
        read_series(tmp_path)
    (tmp_path / "1.parquet").unlink()
    (tmp_path / "1.csv").write_text("item_id,timestamp,target\nc,2020-01-01,1,2\n")
    with pytest.raises(DataError, match="line 10 has 4 columns where the header has 3"):
        read_series(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty is a folder without files that end in \.parquet"):
        read_series(tmp_path / "empty")


def test_list_layout_with_timestamps_needs_no_freq(tmp_path: Path, write_table: Write) -> None:
    stamps = [list(pd.date_range(STARTS[k], periods=len(v), freq="MS")) for k, v in VALUES.items()]
    frame = list_frame().drop(columns=["start", "freq"]).assign(timestamp=stamps)
    assert content(read_series(write_table(frame, tmp_path / "x.parquet"))) == WRITTEN


def test_wide_csv_is_one_series_per_column_with_exact_floats(tmp_path: Path) -> None:
    text = ["0.30000000000000004", "1.5989999771118164", "4.2030000686645508"]
    rows = [f"2016-07-01 0{i}:00:00,{value},{i}" for i, value in enumerate(text)]
    (tmp_path / "x.csv").write_text("date,HUFL,OT\n" + "\n".join(rows))
    first, second = read_series(tmp_path / "x.csv")
    assert (first.item_id, second.item_id) == ("HUFL", "OT")
    assert first.start == pd.Period("2016-07-01 00:00", freq="h")
    assert first.target.tolist() == [float(value) for value in text]


def test_wide_tables_are_read_by_block_not_by_column(tmp_path: Path) -> None:
    """Calls, not seconds: a column as a pandas series of its own takes hundreds."""

    def calls(columns: int) -> int:
        names = ",".join(f"c{one}" for one in range(columns))
        rows = [f"2020-01-{day:02},{','.join(['1.5'] * columns)}" for day in range(1, 13)]
        (tmp_path / "wide.csv").write_text("\n".join([f"time,{names}", *rows]))
        read_series(tmp_path / "wide.csv")
        counted = 0

        def count(_frame: object, event: str, _argument: object) -> None:
            nonlocal counted
            counted += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            read_series(tmp_path / "wide.csv")
        finally:
            sys.setprofile(None)
        return counted

    assert (calls(300) - calls(100)) / 200 < 100


def test_columns_can_be_named(tmp_path: Path, write_table: Write) -> None:
    frame = long_frame().rename(columns={"item_id": "shop", "timestamp": "when", "target": "sold"}).assign(n=1)
    path = write_table(frame, tmp_path / "x.csv")
    assert content(read_series(path, columns=Columns("shop", "when", "sold"))) == WRITTEN
    with pytest.raises(DataError, match="did you mean 'shop'"):
        read_series(path, columns=Columns(id="shops"))


@pytest.mark.parametrize("freq", ["15min", "2h"])
def test_multiples_of_a_frequency_are_one_step(tmp_path: Path, write_table: Write, freq: str) -> None:
    frame = pd.DataFrame({"date": pd.date_range("2020-01-01", periods=9, freq=freq), "y": np.arange(9.0)})
    (one,) = read_series(write_table(frame.drop(index=[3]), tmp_path / "x.csv"))
    assert len(one) == 9
    assert np.isnan(one.target[3])


def test_null_is_a_missing_value(tmp_path: Path) -> None:
    lists = pa.array([[1.0], [1.0, None, 3.0]])
    table = pa.table({"item_id": ["a", "b"], "target": lists, "start": ["2020"] * 2, "freq": ["D"] * 2})
    pa.parquet.write_table(table, tmp_path / "x.parquet")
    (tmp_path / "x.jsonl").write_text('{"item_id":"b","start":"2020","freq":"D","target":[1,null,3]}')
    (tmp_path / "nan.jsonl").write_text('{"item_id":"b","start":"2020","freq":"D","target":[1,NaN,3]}')
    for name in ("x.parquet", "x.jsonl", "nan.jsonl"):
        np.testing.assert_array_equal(read_series(tmp_path / name)[-1].target, [1.0, np.nan, 3.0])


CELLS = ["", "1500-01-01", "9" * 20, "1", "2.5", "x", "2020-01-01", "2020-01-02T03:00+01:00", "1999", "inf", "1/2/2020"]
OF_JSON = json.loads(
    '[1, null, "x", "2020-01-01", [1, null], [], ["x"], [[1]], true, {"a": 1}, ["2020-01-01", "2020-01-02"], "D", "Z", '
    "1000000000000000000000000000000, [1e308], Infinity, 20200101]"
)
NAMES = ["", "date", "time", "id", "y", "u", "year", "start", "freq", "Unnamed: 0"]


@settings(max_examples=150, deadline=None)
@given(data=st.data(), json_lines=st.booleans(), rows=st.integers(0, 6))
def test_whatever_a_file_holds_it_is_read_or_refused_by_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, json_lines: bool, rows: int
) -> None:
    names = data.draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4))
    cells = st.sampled_from(data.draw(st.lists(st.sampled_from(OF_JSON if json_lines else CELLS), min_size=1)))
    table = data.draw(st.lists(st.lists(cells, min_size=len(names), max_size=len(names)), min_size=rows, max_size=rows))
    lines = [json.dumps(dict(zip(names, row, strict=True))) if json_lines else ",".join(row) for row in table]
    path = tmp_path_factory.mktemp("fuzz") / ("x.jsonl" if json_lines else "x.csv")
    path.write_text("\n".join(lines if json_lines else [",".join(names), *lines]))
    message, series = "", []
    try:
        series = read_series(path, dated=False)
    except DataError as error:
        message = str(error)
    assert "\n" not in message
    assert bool(series) != bool(message)
    assert all(len(one) and np.isfinite(one.target).any() for one in series)


def test_an_unknown_format_lists_the_known(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("date,y\n")
    with pytest.raises(DataError, match="did you mean 'parquet'"):
        read_series(tmp_path / "x.csv", format="parket")


def test_starts_far_back_are_read(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"item_id":"old","start":"1500-01-01","freq":"Y","target":[1,2]}')
    (one,) = read_series(tmp_path / "x.jsonl")
    assert one.start.year == 1500


def test_a_frequency_by_which_no_value_is_next_to_another_is_warned_of(tmp_path: Path, write_table: Write) -> None:
    months = pd.DataFrame({"when": pd.date_range("2020-01", periods=5, freq="MS"), "kwh": np.arange(5.0)})
    file = write_table(months, tmp_path / "months.csv")
    with pytest.warns(UserWarning, match="by freq 'D' some series have no value next to another"):
        read_series(file, freq="D")


def test_rows_without_their_frequency_are_named(tmp_path: Path, write_table: Write) -> None:
    path = write_table(list_frame().assign(freq=["M", None]), tmp_path / "x.parquet")
    with pytest.raises(DataError, match="'b' states no frequency"):
        read_series(path)
    assert content(read_series(path, freq="M")) == WRITTEN


@pytest.mark.parametrize("name", ["series", "item"])
def test_a_column_of_lists_holds_no_ids(tmp_path: Path, write_table: Write, name: str) -> None:
    frame = list_frame().drop(columns="item_id").rename(columns={"target": name})
    named = [(f"T{place}", *rest) for place, (_, *rest) in enumerate(WRITTEN)]
    for ending in ("parquet", "jsonl"):
        assert content(read_series(write_table(frame, tmp_path / f"x.{ending}"))) == named


NO_NUMBERS = ["NA", "null", "nan", "N/A", "None"]


def test_words_for_a_missing_value_are_ids_of_series(tmp_path: Path) -> None:
    rows = [f"{name},2024-01-0{day},{day}" for name in ["DE", *NO_NUMBERS] for day in (1, 2)]
    (tmp_path / "x.csv").write_text("\n".join(["item_id,date,y", *rows]))
    series = read_series(tmp_path / "x.csv")
    assert [one.item_id for one in series] == ["DE", *NO_NUMBERS]
    assert all(one.target.tolist() == [1.0, 2.0] for one in series)


@pytest.mark.parametrize("column", ["y", "period", "item"])
def test_words_for_a_missing_value_are_missing_among_values(tmp_path: Path, column: str) -> None:
    cells = ["1", *NO_NUMBERS, "", "8"]
    rows = [f"a,2024-01-0{day},{cell}" for day, cell in enumerate(cells, start=1)]
    (tmp_path / "x.csv").write_text("\n".join([f"item_id,date,{column}", *rows]))
    (one,) = read_series(tmp_path / "x.csv")
    np.testing.assert_array_equal(one.target, [1.0, *[np.nan] * 6, 8.0])


def test_a_csv_without_blank_lines_is_searched_for_them_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, opened = tmp_path / "x.csv", []
    path.write_text("a,b\n" + "1,2\n,\n" * 40)
    monkeypatch.setattr(formats, "CSV_BLOCK", 64)
    usual = Path.open

    def noted(self: Path, *how: Any, **more: Any) -> Any:
        opened.append(usual(self, *how, **more))
        return opened[-1]

    monkeypatch.setattr(Path, "open", noted)
    batches = list(files.open_file(path, 10).batches)
    assert len(batches) > 2
    assert sum(len(batch.frame) for batch in batches) == 80
    assert sum(one.encoding == "utf-8" for one in opened) == 1  # the header is read as utf-8-sig
    assert all(one.closed for one in opened)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("x\n1\n\n3\n", [1, np.nan, 3]),  # pyarrow writes a missing value of a single column so
        ("x\n1\n\n3\n\n\n", [1, np.nan, 3]),
        ("x,z\n1,2\n\n3,4\n", [1, 3]),
        ("x,z\n1,2\n,\n3,4\n", [1, np.nan, 3]),
        ('x,note\n1,"p\nq"\n,\n5,r\n\n6,s\n', [1, np.nan, 5, 6]),
    ],
)
def test_an_empty_line_is_a_gap_in_a_single_column_alone(tmp_path: Path, text: str, values: list[float]) -> None:
    (tmp_path / "x.csv").write_text(text)
    np.testing.assert_array_equal(read_series(tmp_path / "x.csv", freq="D")[0].target, values)


def test_starts_of_lists_are_read_in_one_way(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"

    def starts(*cells: str) -> list[str]:
        rows = [{"item_id": cell, "start": cell, "freq": "D", "target": [1.0, 2.0]} for cell in cells]
        file.write_text("\n".join(json.dumps(row) for row in rows))
        return [str(one.start) for one in read_series(file)]

    assert starts("01/02/2024", "13/02/2024") == ["2024-02-01", "2024-02-13"]
    assert starts("2024-02-01", "2024-02-13T00:00") == ["2024-02-01", "2024-02-13"]
    with pytest.raises(DataError, match="'01/02/2024' in column 'start' may begin with the day or the month"):
        starts("01/02/2024", "03/04/2024")
    with pytest.raises(DataError, match="'13/02/2024' is not a date"):
        starts("2024-02-01", "2024-02-02", "13/02/2024")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_only_column_of_dates_is_that_of_times(tmp_path: Path, write_table: Write, ending: str) -> None:
    table = long_frame().rename(columns={"timestamp": "when"})
    file = write_table(table, tmp_path / f"x.{ending}")
    assert content(read_series(file)) == WRITTEN
    table["seen"] = table["when"]
    with pytest.raises(DataError, match="columns when, seen hold dates; name that of the times"):
        read_series(write_table(table, tmp_path / f"two.{ending}"))
    assert content(read_series(tmp_path / f"two.{ending}", columns=Columns(time="when"))) == WRITTEN


def test_a_date_beside_a_list_is_not_its_start(tmp_path: Path, write_table: Write) -> None:
    table = pd.DataFrame({"ended": pd.to_datetime(["2024-05-01"]), "target": [[1.0, 2.0, 3.0]]})
    (one,) = read_series(write_table(table, tmp_path / "x.parquet"), freq="D")
    assert str(one.start) == "1970-01-01"


def test_series_under_an_unknown_id_are_not_read_as_one(tmp_path: Path, write_table: Write) -> None:
    ids = ["a"] * 4 + ["b"] * 3
    table = pd.DataFrame({"sensor": ids, "when": [*range(4), *range(3)], "kwh": np.arange(7.0)})
    days = table.assign(when=pd.to_datetime(table["when"], unit="D"))
    with pytest.raises(DataError, match=r"1970-01-01 .*twice; several series in one column need a column of item ids"):
        read_series(write_table(days, tmp_path / "days.csv"))
    with pytest.raises(
        DataError, match=r"column 'sensor' may hold the item ids of several series: name it \(id_column"
    ):
        read_series(write_table(table[["sensor", "kwh"]], tmp_path / "x.csv"))
    two = read_series(tmp_path / "x.csv", columns=Columns(id="sensor"), freq="D")
    assert [(one.item_id, len(one)) for one in two] == [("a", 4), ("b", 3)]


@pytest.mark.parametrize("words", [["kWh"] * 6, ["mo", "tu", "we"] * 2, list("abcdef"), ["x", None] * 3])
def test_other_columns_of_text_are_ignored(tmp_path: Path, write_table: Write, words: list) -> None:
    file = write_table(pd.DataFrame({"word": words, "kwh": np.arange(6.0)}), tmp_path / "x.csv")
    (one,) = read_series(file, freq="D")
    assert (one.item_id, one.target.tolist()) == ("kwh", [0, 1, 2, 3, 4, 5])


def test_lists_beside_the_target_are_features(tmp_path: Path) -> None:
    row = '{"item_id":"a","start":"2024-01-01","freq":"D","feat_static_cat":[0,3],"target":[1,2,3]}'
    (tmp_path / "x.jsonl").write_text(row)
    (one,) = read_series(tmp_path / "x.jsonl")
    assert (one.item_id, one.target.tolist()) == ("a", [1, 2, 3])
    (tmp_path / "two.jsonl").write_text(row.replace("target", "sold"))
    assert [each.item_id for each in read_series(tmp_path / "two.jsonl")] == ["a_feat_static_cat", "a_sold"]


def test_counts_with_gaps_in_lists_are_numbers(tmp_path: Path) -> None:
    counts = pa.array([[1, None, 3], [4, 5, 6]], pa.list_(pa.int64()))
    pa.parquet.write_table(pa.table({"item_id": ["a", "b"], "target": counts}), tmp_path / "x.parquet")
    found = read_series(tmp_path / "x.parquet", freq="D")
    np.testing.assert_array_equal(found[0].target, [1, np.nan, 3])
    (tmp_path / "x.jsonl").write_text('{"item_id":"a","open":[true,false]}')
    with pytest.raises(DataError, match="no list column of numbers"):
        read_series(tmp_path / "x.jsonl", freq="D")


@pytest.mark.parametrize(
    "text", ["2024-01-01,4\n", "2024/1/1,4\n", "2024-01,4\n", "31.1.2024,4\n", "a,2024-01-01 10:00,7\n"]
)
def test_a_first_line_of_values_is_no_header(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(DataError, match=r"line 1 has .* in the place of a column's name"):
        read_series(tmp_path / "x.csv", freq="D")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("date,101,102\n2024-01-01,1,2\n2024-01-02,3,4\n", ["101", "102"]),
        ("0,1\n5,6\n7,8\n", ["0", "1"]),
        ("timestamp,2024-01-01_sales\n2024-01-01,1\n2024-01-02,2\n", ["2024-01-01_sales"]),
    ],
)
def test_columns_may_be_named_by_numbers_and_days(tmp_path: Path, text: str, names: list) -> None:
    (tmp_path / "x.csv").write_text(text)
    assert [one.item_id for one in read_series(tmp_path / "x.csv", freq="D")] == names


def test_a_folder_may_hold_several_time_zones(tmp_path: Path) -> None:
    for number, zone in enumerate(("UTC", "Europe/Berlin", None)):
        days = pd.date_range(f"2024-01-0{3 * number + 1}", periods=3, tz=zone)
        pd.DataFrame({"id": "a", "time": days, "target": [1.0, 2.0, 3.0]}).to_parquet(tmp_path / f"{number}.parquet")
    (one,) = read_series(tmp_path)
    assert (len(one), str(one.start)) == (9, "2024-01-01")


@pytest.mark.parametrize("day", ["1500-01-01", "9998-01-01"])
def test_dates_beyond_timestamps_are_named_as_such(tmp_path: Path, day: str) -> None:
    (tmp_path / "x.csv").write_text(f"time,y\n{day},1\n")
    with pytest.raises(DataError, match=f"'{day}' is out of the range of timestamps, 1678 to 2261: count the steps"):
        read_series(tmp_path / "x.csv", freq="D")


def late(path: Path, **more: str) -> list:
    rows = [{"item_id": "a", "target": [1, 2], "freq": "D"}, {"item_id": "b", "target": [1, 2], **more}]
    path.write_text("\n".join(map(json.dumps, rows)))
    stream = open_stream(path, 1)
    return [one for chunk in stream.chunks for one in to_series(chunk, stream.layout, str(path), "line")[0]]


def test_a_time_that_comes_late_in_a_stream_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 2 has a time, 'start', which the first rows lack: write it in all rows"):
        late(tmp_path / "x.jsonl", start="2024-01-01", freq="D")


def test_what_comes_late_in_a_stream_and_is_not_needed_is_passed_over(tmp_path: Path) -> None:
    found = late(tmp_path / "x.jsonl", item="x", freq="M", note="y")
    assert [(one.item_id, one.start.freqstr) for one in found] == [("a", "D"), ("b", "M")]


@pytest.mark.parametrize(
    ("freq", "said"),
    [
        ("W-XXX", "XXX cannot stand behind W; it has to be one of MON"),
        ("Q-MON", "MON cannot stand behind Q; it has to be one of JAN"),
        ("D-MON", "MON cannot stand behind D; it has to be left out"),
        ("9" * 20 + "D", "is too long a step"),
        ("00D", "is not known"),
        ("SM", "is not known"),  # two a month: no period
    ],
)
def test_frequencies_without_a_period_are_refused(tmp_path: Path, freq: str, said: str) -> None:
    (tmp_path / "x.csv").write_text("time,y\n2024-01-01,1\n2024-01-02,2\n")
    with pytest.raises(DataError, match=said):
        read_series(tmp_path / "x.csv", freq=freq)


def test_lists_that_are_called_like_ids_are_features_of_a_stream_too(tmp_path: Path) -> None:
    rows = [{"series": [0, 1], "target": target, "freq": "D"} for target in ([1, 2], [3])]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    stream = open_stream(tmp_path / "x.jsonl", 1)
    assert [len(chunk.frame) for chunk in stream.chunks] == [1, 1]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_text_in_another_encoding_is_named(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "x.csv").write_bytes(
        "item_id,timestamp,target\ncafé,2020-01-01,1\ncafé,2020-01-02,2\n".encode(encoding)
    )
    with pytest.raises(DataError, match=r"x\.csv is not UTF-8 text: save it as UTF-8"):
        read_series(tmp_path / "x.csv")
