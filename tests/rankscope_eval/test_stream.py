"""Forecasts in chunks: the same as in memory, whatever the format or the engine."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from rankscope import load_pipeline
from rankscope.engine.pool import Engine
from rankscope.errors import DataError, OptionError, OutputError, RankscopeError
from rankscope.io.run_store import LOCK
from rankscope.series import Columns, stream
from rankscope.series.stream import SeenIds, open_stream
from rankscope_eval import forecast_file, forecast_stream
from rankscope_eval.forecasters import Forecaster, Forecasting, pipeline_forecaster

Write = Callable[[pd.DataFrame, Path], Path]
SERIES = 10
LEVELS = (0.1, 0.5, 0.9)
HOW: dict[str, Any] = {"quantiles": LEVELS, "chunk": 3}
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: it is the extra 'ray'")


def values() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {f"s{n}": np.round(rng.normal(10, 3, size=5 + n % 4), 6) for n in range(SERIES)}


def list_frame() -> pd.DataFrame:
    target = [one.tolist() for one in values().values()]
    return pd.DataFrame({"item_id": list(values()), "start": "2020-01-01", "freq": "D", "target": target})


def long_frame() -> pd.DataFrame:
    parts = [
        pd.DataFrame({"item_id": key, "timestamp": pd.date_range("2020-01-01", periods=len(v)), "target": v})
        for key, v in values().items()
    ]
    return pd.concat(parts, ignore_index=True)


def whole(out: Path) -> pd.DataFrame:
    """All parts of a folder as one table."""
    exact = partial(pd.read_csv, float_precision="round_trip")
    read: dict[str, Any] = {".parquet": pd.read_parquet, ".csv": exact, ".arrow": pd.read_feather}
    parts = [read[path.suffix](path) for path in sorted(out.glob("part-*"))]
    return pd.concat(parts, ignore_index=True).assign(timestamp=lambda frame: pd.to_datetime(frame["timestamp"]))


def content(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir() if path.name != LOCK}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Sums by one thread, as Ray's workers make them: with more the last digits differ."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def listed(tmp_path: Path, write_table: Write) -> Path:
    return write_table(list_frame(), tmp_path / "lists.parquet")


# --- formats ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x.parquet", "x.jsonl", "x.arrow", "stream.arrow"])
def test_lists_of_every_format_give_the_forecasts_of_the_whole_file(tmp_path: Path, write_table: Write, name: str):
    path = write_table(list_frame(), tmp_path / name)
    report = forecast_stream("seasonal-naive", path, 4, tmp_path / "out", **HOW)
    assert (report.series, report.parts) == (SERIES, 4)
    pd.testing.assert_frame_equal(
        whole(tmp_path / "out"), forecast_file("seasonal-naive", path, 4, quantiles=LEVELS), check_exact=True
    )


@pytest.mark.parametrize("name", ["x.parquet", "x.csv", "x.jsonl", "x.arrow", "stream.arrow"])
@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_long_files_give_the_forecasts_of_the_whole_file(
    tmp_path: Path, write_table: Write, monkeypatch: pytest.MonkeyPatch, name: str, rows: int
):
    monkeypatch.setattr(stream, "ROWS", rows)
    path = write_table(long_frame(), tmp_path / name)
    forecast_stream("naive", path, 3, tmp_path / "out", **HOW)
    pd.testing.assert_frame_equal(
        whole(tmp_path / "out"), forecast_file("naive", path, 3, quantiles=LEVELS), check_exact=True
    )


def test_row_groups_do_not_move_the_parts(tmp_path: Path, listed: Path):
    forecast_stream("naive", listed, 3, tmp_path / "a", **HOW)
    for size in (1, 4):
        path = tmp_path / f"{size}.parquet"
        pq.write_table(pq.read_table(listed), path, row_group_size=size)
        forecast_stream("naive", path, 3, tmp_path / f"out{size}", **HOW)
        for part in (tmp_path / "a").glob("part-*"):
            assert part.read_bytes() == (tmp_path / f"out{size}" / part.name).read_bytes()


@pytest.mark.parametrize("size", [1, 2, 5, 9, 10, 11])
@pytest.mark.parametrize("rows", [1, 4, 13, 100])
def test_chunk_n_holds_the_nth_series_whatever_the_batches(
    tmp_path: Path, write_table: Write, monkeypatch: pytest.MonkeyPatch, size: int, rows: int
):
    monkeypatch.setattr(stream, "ROWS", rows)
    names = list(values())
    wanted = [names[first : first + size] for first in range(0, SERIES, size)]
    for frame, name in ((list_frame(), "lists.jsonl"), (long_frame(), "long.jsonl"), (long_frame(), "long.parquet")):
        found = open_stream(write_table(frame, tmp_path / name), size)
        got = list(found.chunks)
        assert [one.number for one in got] == list(range(len(wanted)))
        assert [list(dict.fromkeys(one.frame["item_id"])) for one in got] == wanted
        assert np.concatenate([one.lines for one in got]).tolist() == list(range(1, len(frame) + 1))


@pytest.mark.parametrize("format", ["parquet", "csv", "arrow"])
def test_parts_of_every_format_hold_the_same_table(tmp_path: Path, listed: Path, format: str):
    forecast_stream("naive", listed, 3, tmp_path / "out", format=format, **HOW)
    pd.testing.assert_frame_equal(
        whole(tmp_path / "out"), forecast_file("naive", listed, 3, quantiles=LEVELS), check_exact=True
    )


def test_pandas_reads_the_folder_as_it_is(tmp_path: Path, listed: Path):
    forecast_stream("naive", listed, 3, tmp_path / "out", **HOW)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out"), whole(tmp_path / "out"))


def test_lists_hold_what_rows_hold(tmp_path: Path, listed: Path, bolt_folder: Path):
    forecast_stream(str(bolt_folder), listed, 3, tmp_path / "rows", **HOW)
    forecast_stream(str(bolt_folder), listed, 3, tmp_path / "lists", shape="lists", **HOW)
    rows, lists = whole(tmp_path / "rows"), whole(tmp_path / "lists")
    assert len(lists) == SERIES
    for column in ("mean", "0.1", "0.9"):
        assert np.concatenate(lists[column]).tolist() == rows[column].tolist()
    times = [pd.date_range(t, periods=3, freq=f) for t, f in zip(lists["timestamp"], lists["freq"], strict=True)]
    assert [stamp for one in times for stamp in one] == rows["timestamp"].tolist()


def test_several_lists_in_a_row_are_several_series(tmp_path: Path, write_table: Write):
    frame = list_frame().assign(other=lambda f: [[1.0, 2.0]] * len(f))
    path = write_table(frame, tmp_path / "x.parquet")
    forecast_stream("naive", path, 2, tmp_path / "out", **HOW)
    pd.testing.assert_frame_equal(whole(tmp_path / "out"), forecast_file("naive", path, 2, quantiles=LEVELS))


def test_columns_can_be_named(tmp_path: Path, write_table: Write):
    names = {"item_id": "shop", "timestamp": "when", "target": "sold"}
    path = write_table(long_frame().rename(columns=names).assign(n=1), tmp_path / "x.csv")
    out = tmp_path / "out"
    forecast_stream("naive", path, 2, out, columns=Columns("shop", "when", "sold"), **HOW)
    assert whole(out)["item_id"].unique().tolist() == list(values())


# --- models -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runtime", ["stock", "fast"])
def test_bolt_gives_the_forecasts_of_the_whole_file(tmp_path: Path, listed: Path, bolt_folder: Path, runtime: str):
    forecast_stream(str(bolt_folder), listed, 5, tmp_path / "out", Forecasting(runtime=runtime), **HOW)
    wanted = forecast_file(str(bolt_folder), listed, 5, quantiles=LEVELS, how=Forecasting(runtime=runtime))
    pd.testing.assert_frame_equal(whole(tmp_path / "out"), wanted, rtol=1e-5)


@pytest.mark.parametrize("runtime", ["stock", "fast"])
def test_sample_paths_are_a_function_of_the_seed_and_the_chunk(
    tmp_path: Path, write_table: Write, sampling_folder: Path, runtime: str
):
    same = list_frame().assign(target=[[1.0, 2.0, 4.0, 3.0]] * SERIES)
    path = write_table(same, tmp_path / "x.parquet")
    model = pipeline_forecaster(
        "m", load_pipeline(sampling_folder, runtime=runtime), Forecasting(num_samples=5, seed=7)
    )
    for out in ("a", "b"):
        forecast_stream(model, path, 4, tmp_path / out, Forecasting(seed=7), **HOW)
    assert content(tmp_path / "a") == content(tmp_path / "b")
    table = whole(tmp_path / "a")
    first, second = table.iloc[:12], table.iloc[12:24]
    assert first["mean"].tolist() != second["mean"].tolist()  # the same series, other random numbers
    small = write_table(same.head(3), tmp_path / "small.parquet")
    pd.testing.assert_frame_equal(first, forecast_file(model, small, 4, quantiles=LEVELS))


def test_the_context_is_cut_and_has_a_limit(tmp_path: Path, write_table: Write, bolt_folder: Path):
    frame = list_frame().assign(target=[np.random.default_rng(n).normal(size=60) for n in range(SERIES)])
    path = write_table(frame, tmp_path / "x.parquet")
    forecast_stream(str(bolt_folder), path, 2, tmp_path / "a", context=12, **HOW)
    cut = frame.assign(target=[one[-12:] for one in frame["target"]], start=pd.Timestamp("2020-02-18"))
    forecast_stream(str(bolt_folder), write_table(cut, tmp_path / "cut.parquet"), 2, tmp_path / "b", **HOW)
    pd.testing.assert_frame_equal(whole(tmp_path / "a"), whole(tmp_path / "b"))
    in_memory = forecast_file(str(bolt_folder), path, 2, context=12, quantiles=LEVELS)
    pd.testing.assert_frame_equal(whole(tmp_path / "a"), in_memory, rtol=1e-5)
    with pytest.raises(OptionError, match=r"context 33 is longer than that of .*, which sees 32 values"):
        forecast_stream(str(bolt_folder), path, 2, tmp_path / "c", context=33, **HOW)
    with pytest.raises(OptionError, match=r"context 33 is longer"):
        forecast_file(str(bolt_folder), path, 2, context=33)
    assert not (tmp_path / "c").exists()


def test_a_series_without_a_number_in_the_context_counts_as_one_without_any(
    tmp_path: Path, write_table: Write, bolt_folder: Path
):
    frame = list_frame().assign(target=[np.r_[np.ones(30), np.full(32, np.nan)], *[np.arange(50.0)] * (SERIES - 1)])
    path = write_table(frame, tmp_path / "x.parquet")
    report = forecast_stream(str(bolt_folder), path, 2, tmp_path / "out", **HOW)
    assert report.nan_only == 1  # the model sees 32 values
    assert whole(tmp_path / "out")["mean"].isna().tolist() == [True] * 2 + [False] * 18


# --- memory -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["list", "long"])
def test_rows_alive_are_bounded_by_the_chunk(
    tmp_path: Path, write_table: Write, monkeypatch: pytest.MonkeyPatch, kind: str
):
    frame = (list_frame if kind == "list" else long_frame)()
    many = pd.concat([frame.assign(item_id=frame["item_id"] + f"-{n}") for n in range(40)], ignore_index=True)
    path = write_table(many, tmp_path / "x.parquet")
    alive, peak = [0], [0]
    opened = stream.open_file

    def forget(rows: int) -> None:
        alive[0] -= rows

    def counted(*args: Any, **how: Any) -> Any:
        source = opened(*args, **how)

        def rows() -> Any:
            for batch in source.batches:
                alive[0] += len(batch.lines)
                lines = batch.lines.copy()  # slices of it keep it alive, as those of the table do theirs
                weakref.finalize(lines, forget, len(lines))
                batch = replace(batch, lines=lines)
                peak[0] = max(peak[0], alive[0])
                yield batch

        return replace(source, batches=rows())

    monkeypatch.setattr(stream, "open_file", counted)
    monkeypatch.setattr(stream, "ROWS", 16)
    report = forecast_stream("naive", path, 2, tmp_path / "out", chunk=8, quantiles=LEVELS)
    assert report.series == 400
    rows_of_a_chunk = 8 * (1 if kind == "list" else 8)
    assert 0 < peak[0] <= 2 * rows_of_a_chunk + 3 * 16


# --- going on ---------------------------------------------------------------------------------------------------


def test_parts_that_were_lost_are_made_again(tmp_path: Path, listed: Path):
    out = tmp_path / "out"
    forecast_stream("naive", listed, 4, out, **HOW)
    wanted = content(out)
    (out / "part-000000.parquet").unlink()
    part = out / "part-000001.parquet"
    part.write_bytes(part.read_bytes()[:-5])
    report = forecast_stream("naive", listed, 4, out, resume=True, **HOW)
    assert report.parts_kept == 2
    assert content(out) == wanted


def test_a_finished_folder_is_left_as_it_is(tmp_path: Path, listed: Path, monkeypatch: pytest.MonkeyPatch):
    out = tmp_path / "out"
    forecast_stream("naive", listed, 4, out, **HOW)
    wanted = content(out)
    report = forecast_stream("naive", listed, 4, out, resume=True, **HOW)
    assert (report.series, report.parts_kept, report.series_per_second) == (SERIES, 4, 0.0)
    assert content(out) == wanted


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"horizon": 5}, "horizon 4, not 5"),
        ({"model": "seasonal-naive"}, "weights 'naive', not 'seasonal-naive'"),
        ({"how": Forecasting(seed=1)}, "seed 0, not 1"),
        ({"quantiles": (0.5,)}, r"quantiles \[0.1, 0.5, 0.9\]"),
        ({"chunk": 4}, "chunk 3, not 4"),
        ({"shape": "lists"}, "layout 'rows'"),
        ({"format": "csv"}, "format 'parquet'"),
        ({"context": 3}, "context None, not 3"),
    ],
)
def test_what_was_begun_otherwise_is_refused(tmp_path: Path, listed: Path, changed: dict, name: str):
    out = tmp_path / "out"
    how = {"model": "naive", "input": listed, "horizon": 4, "out": out, **HOW}
    forecast_stream(**how)
    before = content(out)
    with pytest.raises(OutputError, match=f"was begun with {name}"):
        forecast_stream(**{**how, **changed}, resume=True)
    with pytest.raises(OutputError, match="holds forecasts already"):
        forecast_stream(**how)
    assert content(out) == before


def test_other_weights_and_another_input_are_refused(
    tmp_path: Path,
    listed: Path,
    write_table: Write,
    write_checkpoint: Any,
    tiny_config: Any,
    random_tensors: Any,
    bolt_folder: Path,
):
    out = tmp_path / "out"
    forecast_stream(str(bolt_folder), listed, 2, out, **HOW)
    moved = bolt_folder.rename(tmp_path / "moved")
    forecast_stream(str(moved), listed, 2, out, resume=True, **HOW)  # the same weights in another place
    config = tiny_config("chronos-bolt")
    other = write_checkpoint(tmp_path / "other", config, random_tensors(config, seed=1))
    with pytest.raises(OutputError, match="was begun with weights"):
        forecast_stream(str(other), listed, 2, out, resume=True, **HOW)
    changed = write_table(list_frame().assign(start="2021-01-01"), tmp_path / "changed.parquet")
    with pytest.raises(OutputError, match="was begun with input"):
        forecast_stream(str(moved), changed, 2, out, resume=True, **HOW)


# --- damaged rows -----------------------------------------------------------------------------------------------


def jsonl(tmp_path: Path, line: str, place: int = 5) -> Path:
    rows = [json.dumps(row) for row in list_frame().to_dict("records")]
    rows[place - 1] = line
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(rows) + "\n")
    return path


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
    "date": ('{"item_id":"bad","start":"soon","freq":"D","target":[1,2]}', "line 5 series 'bad': 'soon' is not", "bad"),
    "freq": ('{"item_id":"bad","start":"2020","freq":"Z","target":[1,2]}', "freq 'Z' is not known", "bad"),
    "no freq": ('{"item_id":"bad","start":"2020","target":[1,2]}', "series 'bad' states no frequency", "bad"),
    "no id": ('{"start":"2020","freq":"D","target":[1,2]}', "line 5: column 'item_id' has an empty", ""),
    "twice": ('{"item_id":"s1","start":"2020","freq":"D","target":[1,2]}', "line 5 has an item id, 's1'", "s1"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_row_ends_the_run_by_name_or_is_left_out(tmp_path: Path, case: str):
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
    "no id": (",2020-01-02,1.0", "has no name of a series in column 'item_id'", ""),
}


@pytest.mark.parametrize("case", CSV_DAMAGED)
@pytest.mark.parametrize("gap", [0, 2])
def test_a_damaged_line_of_a_csv_is_named_and_costs_its_series(tmp_path: Path, case: str, gap: int):
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
    assert whole(out)["item_id"].unique().tolist() == [key for key in values() if key != name]


def test_lines_behind_torn_and_empty_ones_keep_their_numbers(tmp_path: Path):
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
def test_a_series_that_comes_back_is_named(tmp_path: Path, write_table: Write, name: str, on_error: str):
    frame = long_frame()
    back = frame[frame["item_id"] == "s1"].assign(timestamp=lambda f: f["timestamp"] + pd.Timedelta("99D"))
    path = write_table(pd.concat([frame, back]), tmp_path / name)
    with pytest.raises(DataError, match=r"series 's1' comes back after other series: sort the file by item_id"):
        forecast_stream("naive", path, 3, tmp_path / "out", on_error=on_error, **HOW)
    assert len(list((tmp_path / "out").glob("part-*"))) == 3


def test_a_file_that_ends_in_rubbish_keeps_what_came_before(tmp_path: Path, write_table: Write):
    path = write_table(list_frame(), tmp_path / "stream.arrow")
    schema = pa.table(pq.read_table(write_table(list_frame(), tmp_path / "y.parquet"))).schema
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for batch in pq.read_table(tmp_path / "y.parquet").to_batches(max_chunksize=2):
            writer.write_batch(batch)
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(DataError, match=r"stream\.arrow cannot be read as arrow after row \d+"):
        forecast_stream("naive", path, 3, tmp_path / "out", **HOW)
    assert list((tmp_path / "out").glob("part-*"))


def test_series_without_a_number_get_a_forecast_of_nan(tmp_path: Path, write_table: Write, bolt_folder: Path):
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
        return [QuantileForecast(c, e["start"], keys) for c, e in zip(cells, entries, strict=True)], 0

    model = Forecaster("odd", run)
    with pytest.raises(DataError, match="model 'odd' forecasts NaN for series 's4'"):
        forecast_stream(model, listed, 2, tmp_path / "a", **HOW)
    report = forecast_stream(model, listed, 2, tmp_path / "b", on_error="skip", **HOW)
    assert (report.series, report.left_out) == (SERIES - 1, 1)


# --- bad input --------------------------------------------------------------------------------------------------


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
        ({"shape": "lists", "format": "csv"}, "no place in CSV"),
        ({"resume": True, "force": True}, "give one of them"),
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


# --- several machines -------------------------------------------------------------------------------------------


@pytest.mark.slow
@needs_ray
def test_ray_makes_the_same_folder(tmp_path: Path, listed: Path, bolt_folder: Path, monkeypatch: pytest.MonkeyPatch):
    for name, value in (
        ("OMP_NUM_THREADS", "1"),
        ("RAY_AUTH_MODE", "disabled"),
        ("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0"),
    ):
        monkeypatch.setenv(name, value)
    from ray.cluster_utils import Cluster

    forecast_stream(str(bolt_folder), listed, 3, tmp_path / "local", **HOW)
    damaged = jsonl(tmp_path, "{")
    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        started.add_node(num_cpus=1)
        engine = Engine("ray", address=started.address)
        report = forecast_stream(str(bolt_folder), listed, 3, tmp_path / "ray", engine=engine, **HOW)
        assert report.parts == 4
        with pytest.raises(DataError, match="line 5 has no JSON"):
            forecast_stream("naive", damaged, 3, tmp_path / "damaged", engine=engine, **HOW)
        forecast_stream("naive", damaged, 3, tmp_path / "damaged", engine=engine, on_error="skip", resume=True, **HOW)
    finally:
        started.shutdown()
    assert content(tmp_path / "ray") == content(tmp_path / "local")
    forecast_stream("naive", damaged, 3, tmp_path / "alone", on_error="skip", **HOW)
    assert content(tmp_path / "damaged") == content(tmp_path / "alone")
