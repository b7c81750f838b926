"""Folders of runs: what is done is read, what was begun goes on, what cannot be is said beforehand."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from rankscope.engine.pool import Engine
from rankscope.errors import DataError
from rankscope_lab.data.windows import ForecastData
from rankscope_lab.ranks.runs import read_runs
from rankscope_lab.slt import runs
from rankscope_lab.slt.run_spec import PROTOCOLS, RunSpec
from rankscope_lab.slt.runs import find_tables, run_data, run_specs, run_task
from rankscope_lab.slt.training import Training, new_model, score

SMALL: dict[str, Any] = {"lookback": 48, "horizon": 8}
SPECS = [RunSpec("made", "dlinear", seed=seed, epochs=2, **SMALL) for seed in (0, 1)]


def test_finished_runs_are_read(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int, str]] = []
    first = run_specs(SPECS, tables, tmp_path, progress=lambda *report: told.append(report))
    assert [one.spec for one in first] == SPECS
    assert [done for done, _, _ in told] == [0, 1, 2, 3, 4]
    assert all(total == 4 for _, total, _ in told)
    kept = [f"{spec.id}.{kind}" for spec in SPECS for kind in ("json", "safetensors")]
    assert sorted(file.name for file in tmp_path.glob("*")) == [".locks", *kept]

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(runs, "Training", refuse)
    assert run_specs([SPECS[1], SPECS[0], SPECS[1]], tables, tmp_path) == [first[1], first[0]]


def test_a_stopped_run_goes_on_where_it_was(
    tables: Path, small_data: ForecastData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(epochs: int) -> None:
        if epochs:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_task(SPECS[0], stop, data=str(tables), out=str(tmp_path))
    steps: list[int] = []
    plain = Training.step
    monkeypatch.setattr(Training, "step", lambda self, at: steps.append(len(at)) or plain(self, at))
    (result,) = run_specs(SPECS[:1], tables, tmp_path)
    assert sum(steps) == result.windows.train  # one epoch of two
    monkeypatch.undo()
    assert [one.test for one in result.epochs] == [one.test for one in Training(SPECS[0], small_data).run().epochs]


def test_weights_are_those_of_the_last_epoch(tables: Path, small_data: ForecastData, tmp_path: Path) -> None:
    (result,) = run_specs(SPECS[:1], tables, tmp_path)
    model = new_model(result.spec, 24)
    model.load_state_dict(load_file(tmp_path / f"{result.spec.id}.safetensors"))
    assert score(model, small_data.test, "float32") == result.last.test


def test_where_validation_chooses_its_weights_are_kept_also_over_a_stop(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps so large that the last epoch is not the best; the run is stopped before it."""
    monkeypatch.setitem(PROTOCOLS, "field", replace(PROTOCOLS["field"], learning_rate=0.1))
    spec = RunSpec("made", "dlinear", "field", epochs=6, **SMALL)
    ended: list[int] = []

    def stop(epochs: int) -> None:
        ended.append(epochs)
        if len(ended) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_task(spec, stop, data=str(tables), out=str(tmp_path))
    (result,) = run_specs([spec], tables, tmp_path)
    assert result.best.number == 5
    model = new_model(spec, 24)
    model.load_state_dict(load_file(tmp_path / f"{spec.id}.safetensors"))
    test = run_data(spec, tables).test
    assert score(model, test, "float32") == result.chosen.test != result.last.test
    (run,) = read_runs([tmp_path]).runs
    assert run.loss == result.chosen.test.mse


def test_etts_have_their_seven_columns(tables: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(tables / "made.csv").rename(columns={"a": "HUFL", "b": "HULL", "c": "OT"})
    frame.to_csv(tmp_path / "ETTh1.csv", index=False)
    with pytest.raises(DataError, match=r"ETTh1\.csv has no column 'MUFL', 'MULL', 'LUFL', 'LULL'; its"):
        run_specs([RunSpec("ETTh1", "dlinear", epochs=1, **SMALL)], tmp_path, tmp_path / "out")


def test_rows_whose_clock_stumbles_are_taken_as_they_stand_when_asked(tables: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(tables / "made.csv")
    frame.loc[100, "date"] = frame.loc[99, "date"]
    frame.to_csv(tmp_path / "made.csv", index=False)
    with pytest.raises(DataError, match="'date' has 2020-01-05 03:00:00 twice"):
        run_specs(SPECS[:1], tmp_path, tmp_path / "out")
    (result,) = run_specs(SPECS[:1], tmp_path, tmp_path / "out", ignore_times=True)
    (plain,) = run_specs(SPECS[:1], tables, tmp_path / "plain")
    assert [one.test for one in result.epochs] == [one.test for one in plain.epochs]


@pytest.mark.slow
def test_processes_give_the_same_numbers(tables: Path, tmp_path: Path) -> None:
    told: list[int] = []
    two = Engine(jobs=2, device="cpu")
    spread = run_specs(SPECS, tables, tmp_path / "two", engine=two, progress=lambda n, of, what: told.append(n))
    one = run_specs(SPECS, tables, tmp_path / "one")
    assert [[epoch.test for epoch in run.epochs] for run in spread] == [
        [epoch.test for epoch in run.epochs] for run in one
    ]
    assert told[-1] == 4


def test_everything_is_checked_before_anything_is_trained(tables: Path, tmp_path: Path) -> None:
    long = RunSpec("made", "dlinear", epochs=1, lookback=48, horizon=30)
    with pytest.raises(DataError, match=r"has 60 rows.*48 to look back and 30 to forecast.*at most 12"):
        run_specs([*SPECS, long], tables, tmp_path)
    with pytest.raises(DataError, match="season of 24 steps does not fit"):
        run_specs([*SPECS, RunSpec("made", "naive", epochs=0, lookback=20, horizon=8)], tables, tmp_path)
    with pytest.raises(DataError, match=r"other\.csv does not exist"):
        run_specs([*SPECS, RunSpec("other", "dlinear")], tables, tmp_path)
    assert not list(tmp_path.glob("*.json"))


def test_gaps_and_holes_are_named(tables: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(tables / "made.csv")
    frame.drop(index=7).to_csv(tmp_path / "gap.csv", index=False)
    with pytest.raises(DataError, match="has no value at 2020-01-01 07:00:00"):
        run_data(RunSpec("gap", "dlinear", **SMALL), tmp_path)
    frame.loc[3, "b"] = None
    frame.to_csv(tmp_path / "hole.csv", index=False)
    with pytest.raises(DataError, match="'b' has no value at 2020-01-01 03:00:00"):
        run_data(RunSpec("hole", "dlinear", **SMALL), tmp_path)


def test_traffic_has_its_first_hundred_columns_as_released(tmp_path: Path) -> None:
    frame = pd.DataFrame({str(column): range(200) for column in range(103)})
    frame.insert(0, "date", pd.date_range("2020-01-01", periods=200, freq="h"))
    frame.to_csv(tmp_path / "traffic.csv", index=False)
    small: dict[str, Any] = {"lookback": 24, "horizon": 4}
    released = run_data(RunSpec("traffic", "slt", **small), tmp_path)
    assert released.columns == tuple(str(column) for column in range(100))
    assert len(run_data(RunSpec("traffic", "slt", "field", **small), tmp_path).columns) == 103


def test_tables_are_found_however_they_are_spelt(tables: Path, tmp_path: Path) -> None:
    shutil.copy(tables / "made.csv", tmp_path / "Weather.csv")
    assert find_tables(tmp_path, ["weather", "Weather"]) == ("Weather",)
    with pytest.raises(DataError, match="did you mean 'Weather'"):
        find_tables(tmp_path, ["Wether"])
    with pytest.raises(DataError, match="there is no folder"):
        find_tables(tmp_path / "none")


@pytest.mark.parametrize("finished", [True, False])
def test_runs_on_another_table_of_the_same_name_are_refused(tables: Path, tmp_path: Path, finished: bool) -> None:
    def stop(epochs: int) -> None:
        if epochs and not finished:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        run_task(SPECS[0], stop, data=str(tables), out=str(tmp_path))
    frame = pd.read_csv(tables / "made.csv")
    other = tmp_path / "other"
    other.mkdir()
    for changed, named in (
        (frame.drop(columns="c"), "3 columns, 125"),
        (frame.replace(frame.iloc[9, 2], 0.5), "3 columns"),
    ):
        changed.to_csv(other / "made.csv", index=False)
        with pytest.raises(DataError, match=f"another table of the name made .{named}"):
            run_specs(SPECS, other, tmp_path)
    assert not list(tmp_path.glob("*-s1.*"))


def test_bfloat16_rounds_products_and_nothing_else(small_data: ForecastData) -> None:
    """Scores differ by rounding, weights stay in float32."""
    runs = [
        Training(RunSpec("made", "dlinear", epochs=1, precision=p, **SMALL), small_data)
        for p in ("float32", "bfloat16")
    ]
    exact, rounded = (run.run().last.test.mse for run in runs)
    assert exact != rounded
    assert rounded == pytest.approx(exact, rel=0.02)
    assert all(weight.dtype == torch.float32 for run in runs for weight in run.model.parameters())
