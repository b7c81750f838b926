"""Damaged rows, series without a number and bad options of a stream: one line each, and what was done stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rankscope.engine.pool import Engine
from rankscope.errors import DataError, OutputError, RankscopeError
from rankscope.series import formats
from rankscope.series.stream import SeenIds
from rankscope_eval import forecast_file, forecast_stream
from rankscope_eval.forecasters import Forecaster

Write = Callable[[pd.DataFrame, Path], Path]
Make = Callable[..., Any]
Read = Callable[[Path], Any]
SERIES = 10
LEVELS = (0.1, 0.5, 0.9)
HOW: dict[str, Any] = {"quantiles": LEVELS, "chunk": 3}


DAMAGED = {
    "no JSON": ('{"item_id": "s4", "target": [1', "line 5 has no JSON", ""),
    "no object": ("[1, 2]", "line 5 has no object", ""),
    "text": ('{"item_id":"bad","start":"2020","freq":"D","target":["x"]}', "line 5: the target of series 'bad'", "bad"),
    "no list": (
        '{"item_id":"bad","start":"2020","freq":"D","target":null}',
        "line 5: the target of series 'bad'",
        "bad",
    ),
    "empty": ('{"item_id":"bad","start":"2020","freq":"D","target":[]}', "line 5: series 'bad' is empty", "bad"),
    "infinite": ('{"item_id":"bad","start":"2020","freq":"D","target":[1,Infinity]}', "line 5: series 'bad'", "bad"),
    "too large": ('{"item_id":"bad","start":"2020","freq":"D","target":[1,1e300]}', "beyond single precision", "bad"),
    "date": (
        '{"item_id":"bad","start":"soon","freq":"D","target":[1,2]}',
        "series 'bad': 'soon' is not",
        "bad",
    ),
    "too late": ('{"item_id":"bad","start":"2262-04-09","freq":"D","target":[1,2]}', "too late for timestamps", "bad"),
    "freq": ('{"item_id":"bad","start":"2020","freq":"Z","target":[1,2]}', "freq 'Z' is not known", "bad"),
    "no freq": ('{"item_id":"bad","start":"2020","target":[1,2]}', "series 'bad' states no frequency", "bad"),
    "no id": ('{"start":"2020","freq":"D","target":[1,2]}', "line 5: column 'item_id' has an empty", ""),
    "twice": ('{"item_id":"s1","start":"2020","freq":"D","target":[1,2]}', "line 5 has an item id, 's1'", "s1"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_row_ends_the_run_by_name_or_is_left_out(
    tmp_path: Path, case: str, values: Make, jsonl: Make, whole: Read, content: Read
):
    line, message, name = DAMAGED[case]
    path, out = jsonl(tmp_path, line), tmp_path / "out"
    with pytest.raises(DataError) as caught:
        forecast_stream("naive", path, 3, out, **HOW)
    text = str(caught.value)
    assert message in text
    assert "1 finished part in" in text
    assert "\n" not in text
    assert [one.name for one in out.glob("part-*")] == ["part-000000.parquet"]
    report = forecast_stream("naive", path, 3, out, on_error="skip", resume=True, **HOW)
    assert (report.series, report.left_out, report.parts_kept) == (SERIES - 1, 1, 1)
    assert (report.named[0].item_id, message in report.named[0].reason) == (name, True)
    wanted = [key for key in values() if key != "s4"]
    assert whole(out)["item_id"].unique().tolist() == wanted
    forecast_stream("naive", path, 3, tmp_path / "whole", on_error="skip", **HOW)
    assert content(out) == content(tmp_path / "whole")


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow"])
def test_a_part_may_lose_all_its_series(form: str, tmp_path: Path, jsonl: Make, whole: Read):
    path, out = jsonl(tmp_path, DAMAGED["text"][0]), tmp_path / "out"
    how = {**HOW, "chunk": 1, "format": form}
    report = forecast_stream("naive", path, 3, out, on_error="skip", **how)
    assert (report.series, report.left_out, report.parts) == (SERIES - 1, 1, SERIES)
    assert (out / f"part-000004.{form}").stat().st_size > 0


def test_a_damaged_row_of_a_table_is_named(tmp_path: Path):
    lists = pa.array([[1.0, 2.0], None, [1.0, float("inf")], [3.0]])
    table = pa.table({"item_id": list("abcd"), "target": lists, "start": ["2020"] * 4, "freq": ["D"] * 4})
    pq.write_table(table, tmp_path / "x.parquet")
    report = forecast_stream("naive", tmp_path / "x.parquet", 1, tmp_path / "out", on_error="skip", **HOW)
    assert [(row.line, row.item_id) for row in report.named] == [(2, "b"), (3, "c")]
    assert "x.parquet: row 3: series 'c' holds an infinite value" in report.named[1].reason


CSV_DAMAGED = {
    "a number": ("s4,2020-01-02,abc", "'abc' in series 's4' is not a number", "s4"),
    "a number that Python takes": ("s4,2020-01-02,1_000", "'1_000' in series 's4' is not a number", "s4"),
    "a date": ("s4,2020-13-77,1.0", "'2020-13-77' is not a date", "s4"),
    "a short row": ("s4,2020-01-02", "has 2 columns where the header has 3", "s4"),
    "a long row": ("s4,2020-01-02,1,2", "has 4 columns where the header has 3", "s4"),
    "no id": (",2020-01-02,1.0", "has no name of a series in column 'item_id', beside series 's4'", ""),
}


@pytest.mark.parametrize("case", CSV_DAMAGED)
@pytest.mark.parametrize("gap", [0, 2])
def test_a_damaged_line_of_a_csv_is_named_and_costs_its_series(
    tmp_path: Path, case: str, gap: int, values: Make, long_frame: Make, whole: Read
):
    line, message, name = CSV_DAMAGED[case]
    rows = long_frame().to_csv(index=False).splitlines()
    place = next(n for n, row in enumerate(rows) if row.startswith("s4,2020-01-02"))
    rows[place] = line
    rows[3:3] = [""] * gap  # empty lines count as lines
    path, out = tmp_path / "x.csv", tmp_path / "out"
    path.write_text("\n".join(rows) + "\n")
    with pytest.raises(DataError, match=f"line {place + 1 + gap}[: ].*1 finished part") as caught:
        forecast_stream("naive", path, 3, out, **HOW)
    assert message in str(caught.value)
    report = forecast_stream("naive", path, 3, out, resume=True, on_error="skip", **HOW)
    assert [row.item_id for row in report.named] == [name]
    assert whole(out)["item_id"].unique().tolist() == [key for key in values() if key != "s4"]


@pytest.mark.parametrize("chunk", [1, 2, 3])
@pytest.mark.parametrize("place", [0, 1, 10])
@pytest.mark.parametrize("block", [64, formats.CSV_BLOCK])
def test_a_damaged_line_costs_its_series_at_the_border_of_a_chunk_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, place: int, block: int, whole: Read
):
    monkeypatch.setattr(formats, "CSV_BLOCK", block)
    days = pd.date_range("2024-01-01", periods=11).strftime("%Y-%m-%d")
    rows = [f"{name},{day},{step}" for name in "ABC" for step, day in enumerate(days)]
    rows[11 + place] += ",1"
    path = tmp_path / "x.csv"
    path.write_text("\n".join(["item_id,timestamp,target", *rows]))
    report = forecast_stream("naive", path, 2, tmp_path / "out", on_error="skip", **{**HOW, "chunk": chunk})
    assert [(row.line, row.item_id) for row in report.named] == [(13 + place, "B")]
    assert whole(tmp_path / "out")["item_id"].unique().tolist() == ["A", "C"]


def test_lines_behind_torn_and_empty_ones_keep_their_numbers(tmp_path: Path, long_frame: Make):
    rows = long_frame().to_csv(index=False).splitlines()
    rows[4] = "s0,2020-01-04"
    rows[5:5] = ["", "s0,1,2,3,4"]
    place = next(n for n, row in enumerate(rows) if row.startswith("s7,"))
    rows[place] = "s7,2020-01-01,abc"
    path = tmp_path / "x.csv"
    path.write_text("\n".join(rows) + "\n")
    report = forecast_stream("naive", path, 3, tmp_path / "out", on_error="skip", **HOW)
    assert [row.line for row in report.named] == [5, 7, place + 1]


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_a_series_that_comes_back_is_named(
    tmp_path: Path, write_table: Write, name: str, on_error: str, long_frame: Make
):
    frame = long_frame()
    back = frame[frame["item_id"] == "s1"].assign(timestamp=lambda f: f["timestamp"] + pd.Timedelta("99D"))
    path = write_table(pd.concat([frame, back]), tmp_path / name)
    with pytest.raises(DataError, match=r"series 's1' comes back after other series: sort the file by item_id"):
        forecast_stream("naive", path, 3, tmp_path / "out", on_error=on_error, **HOW)
    assert len(list((tmp_path / "out").glob("part-*"))) == 3


def test_a_file_that_ends_in_rubbish_keeps_what_came_before(tmp_path: Path, write_table: Write, list_frame: Make):
    path = write_table(list_frame(), tmp_path / "stream.arrow")
    schema = pa.table(pq.read_table(write_table(list_frame(), tmp_path / "y.parquet"))).schema
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for batch in pq.read_table(tmp_path / "y.parquet").to_batches(max_chunksize=2):
            writer.write_batch(batch)
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(DataError, match=r"stream\.arrow cannot be read as arrow after row \d+"):
        forecast_stream("naive", path, 3, tmp_path / "out", **HOW)
    assert list((tmp_path / "out").glob("part-*"))


def test_series_without_a_number_get_a_forecast_of_nan(
    tmp_path: Path, write_table: Write, bolt_folder: Path, list_frame: Make, whole: Read
):
    frame = list_frame()
    frame.loc[4, "target"][:] = [np.nan] * len(frame.loc[4, "target"])
    path = write_table(frame, tmp_path / "x.parquet")
    for model in ("naive", str(bolt_folder)):
        out = tmp_path / Path(model).name
        report = forecast_stream(model, path, 2, out.with_suffix(".out"), **HOW)
        assert (report.series, report.nan_only, report.left_out) == (SERIES, 1, 0)
        table = whole(out.with_suffix(".out"))
        lost = table["item_id"] == "s4"
        assert table.loc[lost].iloc[:, 2:].isna().all(axis=None)
        rest = write_table(frame.drop(index=4), tmp_path / "rest.parquet")
        wanted = forecast_file(model, rest, 2, quantiles=LEVELS)
        pd.testing.assert_frame_equal(table[~lost].reset_index(drop=True), wanted, rtol=1e-5)
    parts = pq.read_table(tmp_path / "naive.out" / "part-000001.parquet")
    assert parts["mean"].null_count == 0  # NaN, not null


def test_a_forecast_of_nan_is_an_error_of_its_series(tmp_path: Path, listed: Path):
    from gluonts.model.forecast import QuantileForecast

    def run(entries: Any, horizon: int, season: int, levels: Any) -> Any:
        cells = [np.full((1 + len(levels), horizon), np.nan if e["item_id"] == "s4" else 1.0) for e in entries]
        keys = [*map(str, levels), "mean"]
        return [QuantileForecast(c, e["start"], keys) for c, e in zip(cells, entries, strict=True)]

    model = Forecaster("odd", run)
    with pytest.raises(DataError, match="model 'odd' returned NaN or infinite values for series 's4'"):
        forecast_stream(model, listed, 2, tmp_path / "a", **HOW)
    report = forecast_stream(model, listed, 2, tmp_path / "b", on_error="skip", **HOW)
    assert (report.series, report.left_out) == (SERIES - 1, 1)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"horizon": 0}, "horizon 0"),
        ({"horizon": -3}, "horizon -3"),
        ({"chunk": 0}, "chunk 0"),
        ({"context": 0}, "context 0"),
        ({"season_length": 0}, "season_length 0"),
        ({"quantiles": (1.5,)}, "between 0 and 1"),
        ({"on_error": "ignore"}, "on_error 'ignore' is not known"),
        ({"shape": "wide"}, "layout 'wide'"),
        ({"format": "xls"}, "format 'xls'"),
        ({"shape": "lists", "format": "csv"}, "not supported in CSV"),
        ({"resume": True, "force": True}, "mutually exclusive"),
        ({"engine": Engine(jobs=2)}, "jobs is 2: on this machine parts are computed one at a time; use engine ray"),
        ({"model": "nowhere/at-all"}, "nowhere/at-all"),
        ({"input": "gone.parquet"}, r"gone\.parquet does not exist"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(tmp_path: Path, listed: Path, how: dict, message: str):
    base = {"model": "naive", "input": listed, "horizon": 2, "out": tmp_path / "out", **HOW}
    with pytest.raises(RankscopeError, match=message):
        forecast_stream(**{**base, **how})
    assert not (tmp_path / "out").exists()


BAD_FILES = {
    "wide": (
        "x.csv",
        "date,a,b\n2020-01-01,1,2\n2020-01-02,2,3\n",
        "has one column per series and has to be read whole",
    ),
    "only torn lines": ("x.jsonl", '{"a"\n{"b"\n', "holds no series: line 1 has no JSON"),
    "no freq": ("x.csv", "item_id,date,y\na,2020-01-01,1\nb,2020-01-01,1\n", r"cannot be told .* give freq \(--freq\)"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files_get_one_line(tmp_path: Path, case: str):
    name, text, message = BAD_FILES[case]
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        forecast_stream("naive", tmp_path / name, 2, tmp_path / "out", **HOW)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_names_that_were_there_are_found_like_in_a_set():
    rng = np.random.default_rng(0)
    seen, known = SeenIds(), set()
    for _ in range(50):
        names = [str(n) for n in rng.integers(3000, size=rng.integers(1, 90))]
        wanted = []
        for name in names:
            wanted.append(name in known)
            known.add(name)
        assert seen.repeated(names).tolist() == wanted


def test_ids_with_separators_of_lines_are_kept_in_the_records(tmp_path: Path, jsonl: Make) -> None:
    line = json.dumps({"item_id": "a\u2028b\x85c", "start": "2020-01-01", "freq": "D", "target": [1e300]})
    path, out = jsonl(tmp_path, line), tmp_path / "out"
    forecast_stream("naive", path, 3, out, on_error="skip", **HOW)
    again = forecast_stream("naive", path, 3, out, on_error="skip", resume=True, **HOW)
    assert [row.item_id for row in again.named] == ["a\u2028b\x85c"]


@pytest.mark.parametrize("text", ["{", "[1]\n", '{"number": "x"}\n', "\xff"])
def test_damaged_records_of_a_finished_folder_are_one_line(
    tmp_path: Path, text: str, values: Make, jsonl: Make
) -> None:
    line = '{"item_id":"last","start":"2020","freq":"D","target":[1,2]}'
    path, out = jsonl(tmp_path, line), tmp_path / "out"
    forecast_stream("naive", path, 3, out, **HOW)
    (out / "_parts.jsonl").write_bytes(text.encode("latin-1"))
    with pytest.raises(OutputError, match=r"_parts.jsonl is damaged .*--force") as caught:
        forecast_stream("naive", path, 3, out, resume=True, **HOW)
    assert "\n" not in str(caught.value)
