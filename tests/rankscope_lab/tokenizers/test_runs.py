"""Runs in a folder: what is run, what is skipped, what enters a mean."""

import json
import math
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rankscope.checkpoints import open_checkpoint
from rankscope.errors import DataError, OptionError, OutputError
from rankscope.io import codec
from rankscope_lab.data.table import VariableTable
from rankscope_lab.tokenizers import runs, study
from rankscope_lab.tokenizers.run_spec import COMPONENTS, Plan, RunRecord, Task
from rankscope_lab.tokenizers.study import run_study, summarise

ROWS = 1200


@pytest.fixture(scope="module")
def table() -> VariableTable:
    """Two variables, an hour a step."""
    rng = np.random.default_rng(0)
    t = np.arange(ROWS)[:, None]
    values = np.sin(2 * np.pi * t / 24 + rng.uniform(0, 6, 2)) + 0.1 * rng.standard_normal((ROWS, 2))
    return VariableTable("waves", ("a", "b"), values, "waves.csv", "h")


def record(seed: int, error: float, **more: object) -> RunRecord:
    return RunRecord(Task("vq", "8-ema", 2, seed), "t", error, math.nan, not math.isfinite(error), 10, 2.0, "m", **more)  # type: ignore[arg-type]


def test_what_is_run() -> None:
    plan = Plan(codes=(8, 16), updates=("ema",), seeds=2)
    tasks = plan.tasks()
    assert [task.setting for task in tasks if task.component == "vq"] == ["8-ema", "8-ema", "16-ema", "16-ema"]
    assert {task.component for task in tasks} == set(COMPONENTS)
    assert {task.seed for task in tasks} == {0, 1}
    assert len({task.id for task in tasks}) == len(tasks)
    assert {task.epochs for task in Plan(epochs=3).tasks()} == {3}
    assert all(quick.epochs < full.epochs for quick, full in zip(Plan(quick=True).tasks(), Plan().tasks(), strict=True))


def test_runs_are_kept_and_skipped(table: VariableTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(("linear-regression", "autoencoder", "vq"), codes=(8,), updates=("ema", "loss"), seeds=1, quick=True)
    steps: list[tuple[int, int]] = []
    report = run_study(table, plan, tmp_path / "out", progress=lambda done, total, what: steps.append((done, total)))
    assert [row.setting for row in report.rows] == ["sgd", "linear", "nonlinear", "8-ema", "8-loss"]
    assert steps == sorted(steps)
    assert steps[-1][0] == steps[-1][1]
    files = sorted(path.name for path in (tmp_path / "out" / "runs").iterdir())
    assert files == sorted(f"{task.id}.json" for task in plan.tasks())
    codebook = report.runs[3]
    assert codebook.width == 64
    assert open_checkpoint(str(tmp_path / "out" / "vq" / codebook.task.id)).config["codes"] == 8
    stored = json.loads((tmp_path / "out" / "runs" / f"{codebook.task.id}.json").read_text())
    assert stored["detail"]["test"]["mse"] == codebook.error

    def refuse(*_: object) -> RunRecord:
        raise AssertionError("this run lies in the folder already")

    monkeypatch.setattr(study, "run_task", refuse)
    again = run_study(table, plan, tmp_path / "out")
    assert again.to_frame().equals(report.to_frame())
    monkeypatch.undo()
    (tmp_path / "out" / "runs" / files[-1]).unlink()
    third = run_study(table, plan, tmp_path / "out")
    assert [run.error for run in third.runs] == [run.error for run in report.runs]


@pytest.mark.slow
def test_a_transformer_leaves_weights_and_ranks(table: VariableTable, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    plan = Plan(("copy", "forecast"), seeds=1, quick=True, lookback=24, horizon=4, epochs=1)
    report = run_study(table, plan, tmp_path)
    assert [run.task.setting for run in report.runs] == ["fresh", "learnt", "one-shot-24-4", "stepwise-24-4"]
    for run in report.runs:
        weights = load_file(tmp_path / "weights" / f"{run.task.id}.safetensors")
        assert sum(tensor.numel() for tensor in weights.values()) == run.parameters
        ranks = run.detail["ranks"]
        roles = {weight["role"] for weight in ranks["weights"]}
        assert {"q", "k", "v", "o", "inner", "outer"} <= roles
        assert {stream["stack"].split(".")[-1] for stream in ranks["streams"]} == {"encoder", "decoder"}
    assert report.runs[0].reference == pytest.approx(14 / 15)


def test_means_leave_diverged_runs_out_and_count_them() -> None:
    more = {"codes": 8, "width": 4, "eps_ranks": {"0.1": 2, "0.05": 3, "0.01": 4}, "perplexity": 3.0, "used": 5}
    runs = [record(0, 1.0, **more), record(1, math.nan, codes=8), record(2, 2.0, **{**more, "used": 8})]
    (row,) = summarise(runs)
    assert (row.runs, row.diverged) == (2, 1)
    assert row.error == 1.5
    assert row.error_std == pytest.approx(statistics.stdev([1.0, 2.0]))
    assert row.used == 6.5
    assert row.eps_ranks == {"0.1": 2, "0.05": 3, "0.01": 4}
    (lost,) = summarise([record(0, math.nan, codes=8)])
    assert math.isnan(lost.error)
    assert lost.diverged == 1
    assert lost.eps_ranks == {}


def test_a_diverged_run_is_a_record_like_any_other(
    table: VariableTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(("vq",), codes=(8,), updates=("ema",), seeds=1, quick=True)
    whole = runs.train_vq
    monkeypatch.setattr(
        runs, "train_vq", lambda parts, *a, **k: whole(replace(parts, train=parts.train * 1e30), *a, **k)
    )
    report = run_study(table, plan, tmp_path)
    assert report.diverged == ("vq-8-ema-e2-s0",)
    assert report.rows[0].runs == 0
    assert not (tmp_path / "vq").exists()
    stored = json.loads((tmp_path / "runs" / "vq-8-ema-e2-s0.json").read_text())
    assert stored["diverged"] is True
    assert stored["error"] is None


def test_records_survive_json() -> None:
    run = record(0, 1.0, perplexity=2.5, eps_ranks={"0.1": 3}, detail={"curve": [1.0, None]})
    back = codec.parse(RunRecord, codec.plain(run))
    assert replace(back, reference=0.0, effective_rank=0.0) == replace(run, reference=0.0, effective_rank=0.0)
    assert math.isnan(back.reference)


def test_bad_input(table: VariableTable, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="did you mean 'vq'"):
        Plan(("vqq",))
    with pytest.raises(OptionError, match="did you mean 'ema'"):
        Plan(updates=("emma",))
    with pytest.raises(OptionError, match="codes is 1: it must be at least 2"):
        Plan(codes=(1,))
    short = replace(table, values=table.values[:300])
    with pytest.raises(DataError, match=r"the validation part of .* has 30 rows, one window takes 96"):
        run_study(short, Plan(("vq",), quick=True), tmp_path / "none")
    with pytest.raises(DataError, match="choose a horizon of at most"):
        run_study(table, Plan(("forecast",), horizon=5000), tmp_path / "none")
    assert not (tmp_path / "none").exists()
    plan = Plan(("linear-regression",), seeds=1, quick=True)
    run_study(table, plan, tmp_path / "one")
    other = replace(table, name="tides")
    with pytest.raises(OutputError, match="was run on waves, 1200 rows, 2 variables, not on tides"):
        run_study(other, plan, tmp_path / "one")
    assert run_study(other, plan, tmp_path / "one", force=True).data.startswith("tides")
    with pytest.raises(DataError, match="a season of 24 steps does not fit into a look-back of 20"):
        run_study(table, Plan(("linear-regression", "forecast"), lookback=20, horizon=4), tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
@pytest.mark.parametrize("other", ["columns", "values"])
def test_runs_on_another_table_of_the_same_name_are_refused(table: VariableTable, tmp_path: Path, other: str) -> None:
    plan = Plan(("linear-regression", "copy"), seeds=1, epochs=1)
    run_study(table, plan, tmp_path)
    changed = {"columns": ("a", "c"), "values": table.values + 1e-9}[other]
    with pytest.raises(OutputError, match="1200 rows, 2 variables, not on these columns and values"):
        run_study(replace(table, **{other: changed}), plan, tmp_path)
    file = tmp_path / "runs" / "linear-regression-sgd-e1-s0.json"
    stored = json.loads(file.read_text())
    assert json.loads((tmp_path / "runs" / "copy-fresh-e1-s0.json").read_text())["digest"] == ""
    file.write_text(json.dumps(stored | {"digest": ""}))  # of before there were digests
    assert run_study(replace(table, **{other: changed}), plan, tmp_path).runs[0].error == stored["error"]


def test_lags_predict_the_next_value(table: VariableTable, tmp_path: Path) -> None:
    """The reference is least squares by another library, on rows cut by a slow loop."""
    report = run_study(table, Plan(("linear-regression",), seeds=1, epochs=1), tmp_path)
    train, rest = table.values[:840], table.values[960:]
    mean, std = train.mean(0), train.std(0)

    def rows(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scaled = ((values - mean) / std).astype(np.float32).astype(np.float64)
        cut = np.array([scaled[i : i + 25, v] for v in range(2) for i in range(len(scaled) - 24)])
        return np.column_stack([cut[:, :-1], np.ones(len(cut))]), cut[:, -1]

    x, y = rows(train)
    solution = np.linalg.lstsq(x, y, rcond=None)[0]
    unseen, after = rows(rest)
    assert report.runs[0].reference == pytest.approx(float(((unseen @ solution - after) ** 2).mean()), rel=1e-6)
    assert torch.get_default_dtype() == torch.float32
