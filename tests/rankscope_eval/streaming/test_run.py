"""Forecasts in chunks: the same as in memory, whatever the format or the engine."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from rankscope import checkpoints, load_pipeline
from rankscope.engine.pool import Engine
from rankscope.errors import CheckpointError, DataError, OptionError, OutputError
from rankscope.series import Columns, stream
from rankscope.series.stream import open_stream
from rankscope_eval import forecast_file, forecast_stream
from rankscope_eval.forecasters import Forecasting, pipeline_forecaster
from rankscope_eval.streaming import job, run

Write = Callable[[pd.DataFrame, Path], Path]
Make = Callable[..., Any]
Read = Callable[[Path], Any]
SERIES = 10
LEVELS = (0.1, 0.5, 0.9)
HOW: dict[str, Any] = {"quantiles": LEVELS, "chunk": 3}
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: it is the extra 'ray'")


@pytest.mark.parametrize("name", ["x.parquet", "x.jsonl", "x.arrow", "stream.arrow"])
def test_lists_of_every_format_give_the_forecasts_of_the_whole_file(
    tmp_path: Path, write_table: Write, name: str, list_frame: Make, whole: Read
):
    path = write_table(list_frame(), tmp_path / name)
    report = forecast_stream("seasonal-naive", path, 4, tmp_path / "out", **HOW)
    assert (report.series, report.parts) == (SERIES, 4)
    pd.testing.assert_frame_equal(
        whole(tmp_path / "out"), forecast_file("seasonal-naive", path, 4, quantiles=LEVELS), check_exact=True
    )


@pytest.mark.parametrize("name", ["x.parquet", "x.csv", "x.jsonl", "x.arrow", "stream.arrow"])
@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_long_files_give_the_forecasts_of_the_whole_file(
    tmp_path: Path,
    write_table: Write,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    rows: int,
    long_frame: Make,
    whole: Read,
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


def test_a_folder_of_files_gives_the_parts_of_one_file(tmp_path: Path, listed: Path):
    forecast_stream("naive", listed, 3, tmp_path / "a", **HOW)
    table, folder = pq.read_table(listed), tmp_path / "data" / "day=1"
    folder.mkdir(parents=True)
    for number, (first, count) in enumerate([(0, 1), (1, 5), (6, 4)]):
        pq.write_table(table.slice(first, count), folder / f"part-{number}.parquet")
    forecast_stream("naive", tmp_path / "data", 3, tmp_path / "b", **HOW)
    for part in (tmp_path / "a").glob("part-*"):
        assert part.read_bytes() == (tmp_path / "b" / part.name).read_bytes()
    forecast_stream("naive", tmp_path / "data", 3, tmp_path / "b", resume=True, **HOW)
    pq.write_table(table.slice(9, 1), folder / "part-2.parquet")
    with pytest.raises(OutputError, match="was begun with input"):
        forecast_stream("naive", tmp_path / "data", 3, tmp_path / "b", resume=True, **HOW)


@pytest.mark.parametrize("size", [1, 2, 5, 9, 10, 11])
@pytest.mark.parametrize("rows", [1, 4, 13, 100])
def test_chunk_n_holds_the_nth_series_whatever_the_batches(
    tmp_path: Path,
    write_table: Write,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    rows: int,
    values: Make,
    list_frame: Make,
    long_frame: Make,
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


def test_small_chunks_of_series_are_not_read_a_few_values_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_table: Write, list_frame: Make, long_frame: Make
) -> None:
    """A row of the long layout is one value: ten million values in chunks of 64 series took 100 s in place of 15."""
    sizes = []
    opened = stream.open_file
    monkeypatch.setattr(
        stream, "open_file", lambda path, size, **more: sizes.append(size) or opened(path, size, **more)
    )
    found = open_stream(write_table(long_frame(), tmp_path / "long.parquet"), 1)
    assert len(list(found.chunks)) == SERIES
    assert sizes == [1, stream.ROWS]
    open_stream(write_table(list_frame(), tmp_path / "lists.parquet"), 1)  # a row is a series, however long
    assert sizes[2:] == [1]


@pytest.mark.parametrize("format", ["parquet", "csv", "arrow"])
def test_parts_of_every_format_hold_the_same_table(tmp_path: Path, listed: Path, format: str, whole: Read):
    """The file's values are in single precision: nine digits of CSV give every one of them back."""
    forecast_stream("naive", listed, 3, tmp_path / "out", format=format, **HOW)
    found, wanted = whole(tmp_path / "out"), forecast_file("naive", listed, 3, quantiles=LEVELS)
    if format == "csv":
        numbers = dict.fromkeys(wanted.columns[2:], "float32")
        found, wanted = found.astype(numbers), wanted.astype(numbers)
    pd.testing.assert_frame_equal(found, wanted, check_exact=True)


def test_pandas_reads_the_folder_as_it_is(tmp_path: Path, listed: Path, whole: Read):
    forecast_stream("naive", listed, 3, tmp_path / "out", **HOW)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out"), whole(tmp_path / "out"))


def test_lists_hold_what_rows_hold(tmp_path: Path, listed: Path, bolt_folder: Path, whole: Read):
    forecast_stream(str(bolt_folder), listed, 3, tmp_path / "rows", **HOW)
    forecast_stream(str(bolt_folder), listed, 3, tmp_path / "lists", shape="lists", **HOW)
    rows, lists = whole(tmp_path / "rows"), whole(tmp_path / "lists")
    assert len(lists) == SERIES
    for column in ("mean", "0.1", "0.9"):
        assert np.concatenate(lists[column]).tolist() == rows[column].tolist()
    times = [pd.date_range(t, periods=3, freq=f) for t, f in zip(lists["timestamp"], lists["freq"], strict=True)]
    assert [stamp for one in times for stamp in one] == rows["timestamp"].tolist()


def test_several_lists_in_a_row_are_several_series(tmp_path: Path, write_table: Write, list_frame: Make, whole: Read):
    frame = list_frame().assign(other=lambda f: [[1.0, 2.0]] * len(f))
    path = write_table(frame, tmp_path / "x.parquet")
    forecast_stream("naive", path, 2, tmp_path / "out", **HOW)
    pd.testing.assert_frame_equal(whole(tmp_path / "out"), forecast_file("naive", path, 2, quantiles=LEVELS))


def test_columns_can_be_named(tmp_path: Path, write_table: Write, values: Make, long_frame: Make, whole: Read):
    names = {"item_id": "shop", "timestamp": "when", "target": "sold"}
    path = write_table(long_frame().rename(columns=names).assign(n=1), tmp_path / "x.csv")
    out = tmp_path / "out"
    forecast_stream("naive", path, 2, out, columns=Columns("shop", "when", "sold"), **HOW)
    assert whole(out)["item_id"].unique().tolist() == list(values())


@pytest.mark.parametrize("runtime", ["stock", "fast"])
def test_bolt_gives_the_forecasts_of_the_whole_file(
    tmp_path: Path, listed: Path, bolt_folder: Path, runtime: str, whole: Read
):
    forecast_stream(str(bolt_folder), listed, 5, tmp_path / "out", Forecasting(runtime=runtime), **HOW)
    wanted = forecast_file(str(bolt_folder), listed, 5, quantiles=LEVELS, how=Forecasting(runtime=runtime))
    pd.testing.assert_frame_equal(whole(tmp_path / "out"), wanted, rtol=1e-5)


@pytest.mark.parametrize("runtime", ["stock", "fast"])
def test_sample_paths_are_a_function_of_the_seed_and_the_chunk(
    tmp_path: Path,
    write_table: Write,
    sampling_folder: Path,
    runtime: str,
    list_frame: Make,
    whole: Read,
    content: Read,
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


def test_the_context_is_cut_and_has_a_limit(
    tmp_path: Path, write_table: Write, bolt_folder: Path, list_frame: Make, whole: Read
):
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
    tmp_path: Path, write_table: Write, bolt_folder: Path, list_frame: Make, whole: Read
):
    frame = list_frame().assign(target=[np.r_[np.ones(30), np.full(32, np.nan)], *[np.arange(50.0)] * (SERIES - 1)])
    path = write_table(frame, tmp_path / "x.parquet")
    report = forecast_stream(str(bolt_folder), path, 2, tmp_path / "out", **HOW)
    assert report.nan_only == 1  # the model sees 32 values
    assert whole(tmp_path / "out")["mean"].isna().tolist() == [True] * 2 + [False] * 18


def test_a_checkpoint_is_opened_once(
    tmp_path: Path, listed: Path, bolt_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    original = checkpoints.open_checkpoint

    def counted(model: Any, **how: Any) -> Any:
        opened.extend([model] if isinstance(model, str) else [])
        return original(model, **how)

    monkeypatch.setattr(checkpoints, "open_checkpoint", counted)
    forecast_stream(str(bolt_folder), listed, 2, tmp_path / "out", **HOW)
    assert opened == [str(bolt_folder)]


@pytest.mark.parametrize("kind", ["list", "long"])
def test_rows_alive_are_bounded_by_the_chunk(
    tmp_path: Path, write_table: Write, monkeypatch: pytest.MonkeyPatch, kind: str, list_frame: Make, long_frame: Make
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


def test_parts_that_were_lost_are_made_again(tmp_path: Path, listed: Path, content: Read):
    out = tmp_path / "out"
    forecast_stream("naive", listed, 4, out, **HOW)
    wanted = content(out)
    (out / "part-000000.parquet").unlink()
    part = out / "part-000001.parquet"
    part.write_bytes(part.read_bytes()[:-5])
    report = forecast_stream("naive", listed, 4, out, resume=True, **HOW)
    assert report.parts_kept == 2
    assert content(out) == wanted


def test_a_finished_folder_is_left_as_it_is(
    tmp_path: Path, listed: Path, monkeypatch: pytest.MonkeyPatch, content: Read
):
    out = tmp_path / "out"
    forecast_stream("naive", listed, 4, out, **HOW)
    wanted = content(out)
    report = forecast_stream("naive", listed, 4, out, resume=True, **HOW)
    assert (report.series, report.parts_kept, report.series_per_second) == (SERIES, 4, 0.0)
    assert content(out) == wanted


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"horizon": 5}, "with horizon 4, not 5"),
        ({"model": "seasonal-naive"}, "with weights 'naive', not 'seasonal-naive'"),
        ({"how": Forecasting(seed=1)}, "with seed 0, not 1"),
        ({"quantiles": (0.5,)}, r"with quantiles \[0.1, 0.5, 0.9\]"),
        ({"chunk": 4}, "with chunk 3, not 4"),
        ({"shape": "lists"}, "with layout 'rows'"),
        ({"format": "csv"}, "with format 'parquet'"),
        ({"context": 3}, "without context, not 3"),
    ],
)
def test_what_was_begun_otherwise_is_refused(tmp_path: Path, listed: Path, changed: dict, name: str, content: Read):
    out = tmp_path / "out"
    how = {"model": "naive", "input": listed, "horizon": 4, "out": out, **HOW}
    forecast_stream(**how)
    before = content(out)
    with pytest.raises(OutputError, match=f"was begun {name}"):
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
    list_frame: Make,
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


def test_a_change_anywhere_in_a_large_input_is_seen(tmp_path: Path) -> None:
    """One byte in 80 MiB, a size at which only places in a file were read once."""
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"0" * (80 << 20))
    before = run._digest(path)
    with path.open("r+b") as stream:
        stream.seek((80 << 20) // 63 + (1 << 19))
        stream.write(b"1")
    assert run._digest(path) != before


def test_a_worker_refuses_another_model_of_that_name(listed: Path, bolt_folder: Path) -> None:
    rows = open_stream(listed, 3)
    how = Forecasting()
    common: dict[str, Any] = {"how": how, "horizon": 2, "levels": LEVELS, "season_length": None, "context": None}
    common |= {"stop": True, "path": str(listed), "unit": "row", "layout": rows.layout, "shape": "rows"}
    one = job.Job(model=str(bolt_folder), weights="0" * 16, format="csv", **common)
    with pytest.raises(CheckpointError, match="is not the model that the run began with"):
        job.forecast_chunk(one, next(iter(rows.chunks)))


def test_times_of_a_series_in_csv_do_not_depend_on_its_chunk(tmp_path: Path) -> None:
    starts = [("2024-01-01", "D"), ("2024-01-01", "D"), ("2024-01-01 05:00", "h"), ("2024-01-01", "h")]
    lines = [
        json.dumps({"item_id": f"s{at}", "start": start, "freq": freq, "target": [1.0, 2.0, 3.0]})
        for at, (start, freq) in enumerate(starts)
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    found = set()
    for chunk in (1, 2, 3, 4):
        out = tmp_path / f"out-{chunk}"
        forecast_stream("naive", tmp_path / "x.jsonl", 1, out, chunk=chunk, quantiles=LEVELS, format="csv")
        parts = [path.read_text().splitlines()[1:] for path in sorted(out.glob("part-*"))]
        found.add(tuple(row.split(",")[1] for part in parts for row in part))
    assert found == {("2024-01-04", "2024-01-04", "2024-01-01 08:00:00", "2024-01-01 03:00:00")}


@pytest.mark.slow
@needs_ray
def test_ray_makes_the_same_folder(
    tmp_path: Path, listed: Path, bolt_folder: Path, monkeypatch: pytest.MonkeyPatch, jsonl: Make, content: Read
):
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
