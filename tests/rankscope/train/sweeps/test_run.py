"""Running sweeps in one process: everything is trained once, goes on where it stopped, and failures stay alone."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load_file

import rankscope.train.trainer as trainer
from rankscope.checkpoints import checkpoint as reading
from rankscope.checkpoints import open_checkpoint
from rankscope.engine.pool import Ended, Pool
from rankscope.errors import OutputError, RankscopeError
from rankscope.io import codec
from rankscope.measure.sweep import SweepReport, SweepRow
from rankscope.train import PretrainConfig
from rankscope.train.config import ModelShape
from rankscope.train.models import new_model
from rankscope.train.sweeps import Engine, PointTask, Scoring, choose_points, find_sweep, plan_sweep, run_sweep
from rankscope.train.sweeps.points import SweepFolder, inheriting
from rankscope.train.sweeps.run import OVERHEAD, Meter, Work, _Run, count_parameters, step_cost
from rankscope.train.sweeps.spec import with_fields

CPU = Engine(device="cpu")


def run(spec, out, **options) -> SweepReport:
    return run_sweep(spec, out, engine=CPU, **options)


def states(report: SweepReport) -> dict[str, str]:
    return {row.point: row.state for row in report.points}


def forbid_training(monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("trained again")

    monkeypatch.setattr(trainer, "pretrain", fail)


def test_a_sweep_trains_measures_and_writes_its_table(sweep, tmp_path):
    notes = []
    report = run(sweep(), tmp_path / "out", note=notes.append)
    assert states(report) == {"small": "done", "large": "done"}
    small, large = report.points
    assert (small.config["model"]["d_model"], large.config["model"]["d_model"]) == (8, 16)
    for row in report.points:
        stored = load_file(tmp_path / "out" / row.folder / "model.safetensors")
        w = stored["encoder.block.0.layer.0.SelfAttention.q.weight"].double().numpy()
        sigma = np.linalg.svd(w, compute_uv=False)
        assert row.ranks.layer_ranks["encoder.self"]["0.1"] == [int((sigma > 0.1 * sigma[0]).sum())]
        assert row.parameters == sum(t.numel() for t in stored.values())
        assert row.steps == 6
        record = json.loads((tmp_path / "out" / row.folder / "pretrain.json").read_text())
        assert row.loss == record["report"]["loss"]
    saved = json.loads((tmp_path / "out" / "sweep.json").read_text())
    assert codec.parse(SweepReport, saved) == report
    table = pd.read_csv(tmp_path / "out" / "sweep.csv", float_precision="round_trip").fillna({"error": ""})
    pd.testing.assert_frame_equal(table, pd.read_parquet(tmp_path / "out" / "sweep.parquet"), check_dtype=False)
    assert table["rank@0.1"].tolist() == [row.ranks.mean_ranks["all"]["0.1"] for row in report.points]
    assert [note.partition(":")[0] for note in notes] == ["small", "large"]
    assert "(2 of 2, all over)" in notes[-1]


def test_a_finished_sweep_is_not_trained_again(sweep, tmp_path, monkeypatch):
    first = run(sweep(), tmp_path / "out")
    forbid_training(monkeypatch)
    notes = []
    assert run(sweep(), tmp_path / "out", note=notes.append) == first
    assert notes == []


def test_snapshots_of_a_trained_point_are_removed_after_a_kill(sweep, tmp_path, monkeypatch):
    first = run(sweep(), tmp_path / "out")
    left = tmp_path / "out" / "points" / "small.run" / "checkpoint-6"
    left.mkdir(parents=True)
    (left / "model.safetensors").touch()
    SweepFolder(tmp_path / "out").store.put("small", dataclasses.replace(first.points[0], state="begun"))
    forbid_training(monkeypatch)
    assert run(sweep(), tmp_path / "out") == first
    assert not left.parent.exists()


def test_other_tolerances_are_measured_without_training(sweep, tmp_path, monkeypatch):
    run(sweep(), tmp_path / "out")
    forbid_training(monkeypatch)
    report = run(sweep(eps=[0.3]), tmp_path / "out")
    assert states(report) == {"small": "done", "large": "done"}
    assert list(report.points[0].ranks.mean_ranks["all"]) == ["0.3"]


@pytest.mark.slow
def test_a_stopped_point_goes_on_from_its_snapshot(sweep, tmp_path):
    run(sweep(), tmp_path / "whole")

    def stop(done, total, what):
        if what == "large step 5/6":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(sweep(), tmp_path / "out", progress=stop)
    assert states(codec.read(SweepReport, (tmp_path / "out" / "sweep.json"))) == {
        "small": "done",
        "large": "waiting",
    }
    report = run(sweep(), tmp_path / "out")
    assert [row.resumed_at for row in report.points] == [(), (5,)]  # the snapshot was taken after step 4
    for name in ("small", "large"):
        a, b = (load_file(tmp_path / out / "points" / name / "model.safetensors") for out in ("whole", "out"))
        assert all((a[key] == b[key]).all() for key in a)


@pytest.mark.slow
def test_a_point_that_fails_is_recorded_and_the_others_go_on(sweep, tmp_path):
    spec = sweep(points={"bad": {"learning_rate": 1e30}, "good": {}})
    notes = []
    report = run(spec, tmp_path / "out", note=notes.append)
    assert states(report) == {"bad": "failed", "good": "done"}
    assert "nan" in report.points[0].error.lower() or "inf" in report.points[0].error.lower()
    assert "\n" not in report.points[0].error
    assert report.points[0].ranks is None
    assert notes[0].startswith("bad: failed: ")
    frame = pd.read_csv(tmp_path / "out" / "sweep.csv")
    assert frame["state"].tolist() == ["failed", "done"]
    assert [row.point for row in report.failed] == ["bad"]


@pytest.mark.slow
def test_only_some_points_run_and_the_others_wait(sweep, tmp_path, monkeypatch):
    report = run(sweep(), tmp_path / "out", only=["large"])
    assert states(report) == {"small": "waiting", "large": "done"}
    assert states(run(sweep(), tmp_path / "out")) == {"small": "done", "large": "done"}


@pytest.mark.slow
def test_another_config_is_refused_and_force_trains_anew(sweep, tmp_path):
    run(sweep(), tmp_path / "out")
    before = {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()}
    other = sweep(base={"learning_rate": 0.02})
    with pytest.raises(OutputError, match=r"point 'small' .* was begun with learning_rate 0\.001, not 0\.02"):
        run(other, tmp_path / "out")
    with pytest.raises(OutputError, match="max_steps 6, not 4"):
        run(sweep(), tmp_path / "out", steps=4)
    with pytest.raises(OutputError, match=r"low_rank\.r0 None, not 2\.0"):
        run(sweep(points={"small": {"model.d_model": 8, "low_rank.r0": 2.0}}), tmp_path / "out")
    assert {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()} == before
    report = run(other, tmp_path / "out", force=True)
    assert {row.config["learning_rate"] for row in report.points} == {0.02}
    assert [row.resumed_at for row in report.points] == [(), ()]
    after = (tmp_path / "out" / "points" / "small" / "model.safetensors").read_bytes()
    assert after != before[tmp_path / "out" / "points" / "small" / "model.safetensors"]


def test_points_that_were_trained_on_other_data_are_refused(sweep, tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("x\n" + "".join(f"{value % 7}\n" for value in range(80)))
    spec = sweep(base={"mixture": {"files": [str(file)], "file_share": 0.5}}, points={"small": {"model.d_model": 8}})
    done = run(spec, tmp_path / "out")
    assert run(spec, tmp_path / "out") == done
    kept = file.read_text()
    file.write_text(kept.replace("6", "60"))
    with pytest.raises(OutputError, match=r"point 'small' .* was trained when .*mine.csv held other data"):
        run(spec, tmp_path / "out")
    file.unlink()
    assert run(spec, tmp_path / "out") == done
    file.write_text(kept)
    assert run(spec, tmp_path / "out") == done


INHERITING = {
    "first": {},
    "second": {"embedding.source": "inherit", "embedding.model": "@first"},
    "third": {"embedding.source": "inherit", "embedding.model": "@second"},
    "other": {},
}


@pytest.mark.slow
def test_only_brings_what_it_inherits_from_and_force_keeps_that(sweep, tmp_path):
    def written(point):
        return (tmp_path / "out" / "points" / point / "model.safetensors").stat().st_mtime_ns

    spec = sweep(points=INHERITING)
    report = run(spec, tmp_path / "out", only=["third"])
    assert states(report) == {"first": "done", "second": "done", "third": "done", "other": "waiting"}
    before = {point: written(point) for point in ("first", "second", "third")}
    run(spec, tmp_path / "out", only=["third"], force=True)
    assert {point for point, when in before.items() if written(point) > when} == {"third"}


def test_folders_that_hold_something_else_are_refused(sweep, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("mine")
    with pytest.raises(OutputError, match="exists and holds no sweep"):
        run(sweep(), mine)
    with pytest.raises(OutputError, match="exists and holds no sweep"):
        run(sweep(), mine, force=True)
    with pytest.raises(OutputError, match="is a file"):
        run(sweep(), mine / "thesis.txt")
    (mine / "sweep.json").write_text('{"schema": "other"}')
    with pytest.raises(OutputError, match="holds no sweep"):
        run(sweep(), mine)
    run(sweep(), tmp_path / "out", only=["small"])
    with pytest.raises(OutputError, match="holds the sweep 'toy', not 'other'"):
        run(dataclasses.replace(sweep(), name="other"), tmp_path / "out")
    foreign = tmp_path / "out" / "points" / "large"
    foreign.mkdir()
    with pytest.raises(OutputError, match="was not trained by this sweep"):
        run(sweep(), tmp_path / "out")
    assert sorted(path.name for path in mine.iterdir()) == ["sweep.json", "thesis.txt"]


def weight_sum(checkpoint) -> dict[str, float]:
    tensors = load_file(checkpoint.folder / "model.safetensors")
    return {"total": sum(float(t.double().abs().sum()) for t in tensors.values())}


def no_score(checkpoint) -> dict[str, float]:
    raise RankscopeError("the data are gone.")


@pytest.mark.slow
def test_points_are_scored_once_per_scoring(sweep, tmp_path, monkeypatch):
    opened = []
    locate = reading.locate
    monkeypatch.setattr(reading, "locate", lambda model, *args: opened.append(str(model)) or locate(model, *args))
    report = run(sweep(), tmp_path / "out", scoring=Scoring(weight_sum, "sum"))
    assert opened == [str(tmp_path / "out" / row.folder) for row in report.points]
    for row in report.points:
        assert row.scores == weight_sum(open_checkpoint(tmp_path / "out" / row.folder))
        assert row.scored_with == "sum"
    table = pd.read_parquet(tmp_path / "out" / "sweep.parquet")
    assert table["total"].tolist() == [row.scores["total"] for row in report.points]
    forbid_training(monkeypatch)
    assert run(sweep(), tmp_path / "out", scoring=Scoring(no_score, "sum")) == report  # the name says: done already
    failed = run(sweep(), tmp_path / "out", scoring=Scoring(no_score, "other"), only=["small"])
    assert failed.points[0].error == "the data are gone."
    assert states(run(sweep(), tmp_path / "out")) == {"small": "done", "large": "done"}


class ScriptedPool(Pool):
    """Ends one started point per look, the latest first; ``fails`` names those that fail."""

    def __init__(self, root, fails=()) -> None:
        self.folder, self.fails = SweepFolder(root), fails
        self.open, self.started = [], []

    room = True
    busy = property(lambda self: bool(self.open))

    def start(self, task) -> None:
        self.open.append(task)
        self.started.append(task.point.name)

    def finished(self, timeout):
        if not self.open:
            return []
        task = self.open.pop()
        point = task.point
        state = "failed" if point.name in self.fails else "done"
        row = SweepRow(point.name, {}, codec.plain(point.config), state=state, error="broken", loss=1.0)
        self.folder.store.put(point.name, row)
        return [Ended(task, row)]

    def close(self) -> None:
        self.open.clear()


@pytest.mark.slow
@pytest.mark.parametrize("fails", [(), ("base",)])
def test_points_wait_for_the_one_they_inherit_from(sweep, tmp_path, monkeypatch, fails):
    inherit = {"embedding.source": "inherit", "embedding.model": "@base"}
    spec = sweep(points={"base": {}, "heir": inherit, "other": {}})
    points = spec.expand()
    tasks = [PointTask(point, str(tmp_path), spec.eps) for point in points]
    pool = ScriptedPool(tmp_path, fails)
    monkeypatch.setattr("rankscope.train.sweeps.run.open_pool", lambda *args, **options: pool)
    notes = []
    _Run(spec, points, SweepFolder(tmp_path), tasks, lambda *a: None, notes.append).go(CPU)
    if fails:
        assert pool.started == ["base", "other"]
        assert notes[-1].startswith("heir: failed: point 'base', whose embedding it inherits, failed")
    else:
        assert pool.started == ["base", "other", "heir"]
    assert len(notes) == 3
    assert "(3 of 3, all over)" in notes[-1]


@pytest.mark.slow
def test_the_inherited_checkpoint_is_the_point_of_this_folder(sweep, tmp_path):
    inherit = {"embedding.source": "inherit", "embedding.model": "@base"}
    spec = sweep(points={"base": {}, "heir": inherit})
    task = PointTask(spec.expand()[1], str(tmp_path), spec.eps)
    with pytest.raises(OutputError, match="point 'base', whose embedding it inherits, has no checkpoint yet"):
        inheriting(task.point.config, tmp_path)
    (tmp_path / "points" / "base").mkdir(parents=True)
    assert inheriting(task.point.config, tmp_path).embedding.model == str(tmp_path / "points" / "base")


@pytest.mark.slow
def test_an_inherited_embedding_is_that_of_the_trained_point(sweep, tmp_path):
    heir = {"embedding.source": "inherit", "embedding.model": "@base", "embedding.frozen": True, "low_rank.r0": 2.0}
    spec = sweep(points={"base": {}, "heir": heir})
    report = run(spec, tmp_path / "out", only=["heir"])
    assert [(row.point, row.state, row.error) for row in report.points] == [("base", "done", ""), ("heir", "done", "")]
    base, heir = (load_file(tmp_path / "out" / "points" / name / "model.safetensors") for name in ("base", "heir"))
    assert (base["shared.weight"] == heir["shared.weight"]).all()
    assert report.points[1].config["embedding"]["model"] == "@base"  # the folder may move
    assert report.points[1].ranks.attention_parameters < report.points[0].ranks.attention_parameters


@pytest.mark.parametrize("name", ["width", "chebyshev", "patch", "design", "design-bolt"])
def test_parameters_of_a_plan_are_those_of_the_model(name):
    config = [point for point in find_sweep(name).expand() if not point.needs][-1].config
    config = with_fields(config, {"model.d_model": 64, "model.d_ff": 64})
    assert count_parameters(config) == sum(p.numel() for p in new_model(config).parameters())


def test_a_plan_says_what_is_left(sweep, tmp_path):
    spec = sweep()

    def stop(done, total, what):
        if what == "large step 5/6":
            raise KeyboardInterrupt

    points, chosen = choose_points(spec)
    before = codec.plain(plan_sweep(spec, points, chosen, tmp_path / "out"))
    assert [(p["state"], p["steps_left"]) for p in before["points"]] == [("waiting", 6)] * 2
    assert not (tmp_path / "out").exists()
    with pytest.raises(KeyboardInterrupt):
        run(spec, tmp_path / "out", progress=stop)
    after = plan_sweep(spec, points, chosen, tmp_path / "out")
    assert after.points[0].state == "done"
    assert after.points[0].steps_left == 0
    assert after.points[1].state == "begun"
    assert 1 <= after.points[1].steps_left < 6
    assert [p.point for p in plan_sweep(spec, points, frozenset({"large"}), tmp_path / "out").points] == ["large"]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_time_left_follows_the_cost_of_the_steps():
    clock, told = Clock(), []
    meter = Meter({"cheap": Work(10, 1.0, 5), "dear": Work(10, 4.0, 5)}, lambda *a: told.append(a), clock)
    assert meter.seconds_left is None
    clock.now += 5
    meter.step("cheap", 5)  # 5 units in 5 s: 45 units are left
    assert meter.seconds_left == pytest.approx(45.0)
    assert told[-1] == (2, 20, "cheap step 5/10")  # 5 of 50 units, in 20 average steps
    meter.finish("cheap")
    meter.finish("dear")
    assert told[-1][:2] == (20, 20)
    assert meter.seconds_left == 0


def test_steps_of_an_earlier_run_are_no_pace():
    clock = Clock()
    meter = Meter({"a": Work(100, 2.0, 10)}, clock=clock)
    clock.now += 10
    meter.step("a", 60)  # the first report after going on at step 50: 10 steps in 10 s, 40 left
    assert meter.seconds_left == pytest.approx(40.0)


def test_a_failed_point_is_no_pace():
    clock = Clock()
    meter = Meter({"a": Work(100, 1.0, 10), "b": Work(100, 1.0, 10)}, clock=clock)
    clock.now += 10
    meter.step("a", 10)
    meter.finish("a")  # it failed at step 10
    assert meter.seconds_left == pytest.approx(100.0)


def test_cost_counts_tokens_and_parameters():
    t5 = PretrainConfig(context=512, horizon=64, batch_size=4, accumulation=2)
    assert step_cost(t5, 10) == OVERHEAD + 8 * (576 + 2) * 10  # end tokens
    bolt = PretrainConfig(family="chronos-bolt", model=ModelShape(patch_size=16), context=512, batch_size=4)
    assert step_cost(bolt, 10) == OVERHEAD + 4 * (32 + 2) * 10  # register and decoder token
