"""The check of published checkpoints: its steps on tiny checkpoints in a local cache of the hub, and its verdicts."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from huggingface_hub import constants

from rankscope.compress.calibration import sources

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The script as it is run from its own folder."""
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    spec = importlib.util.spec_from_file_location("published", BENCHMARKS / "published.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("provenance", None)


def row(model: str, dataset: str, score: float, published: float | None) -> dict[str, Any]:
    scores = {"MASE": score, "WQL": score, "published_MASE": published, "published_WQL": published}
    return {"model": model, "dataset": dataset, **scores}


def test_scores_are_held_to_what_published_runs_differ_by(script: ModuleType) -> None:
    rows = [
        row("bolt", "nn5", 1.004, 1.0),
        row("bolt", "nn5", 0.994, 1.0),
        row("t5", "nn5", 1.019, 1.0),
        row("t5", "nn5", 0.979, 1.0),
        row("t5", "exchange_rate", 1.019, 1.0),
        row("bolt", "nn5", float("nan"), 1.0),
        row("smaller", "nn5", 3.0, None),
    ]
    verdicts = [one["held"] for one in script.compare(rows, {"t5"})]
    assert verdicts == [held for held in (True, False, True, False, None, False) for _ in ("MASE", "WQL")]


def test_every_task_and_model_has_published_scores(script: ModuleType) -> None:
    from rankscope_eval.suites import load_suite

    known = {(one.dataset, one.model) for one in load_suite(script.SUITE).published}
    assert {(task, model) for task in script.TASKS for model in script.MODELS} <= known


@pytest.mark.slow
def test_the_whole_check_runs_on_a_cache_of_the_hub(
    script: ModuleType,
    write_checkpoint: Callable[..., Path],
    tiny_config: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Random weights are no published ones: exit code 1 after all steps, with the baseline's row in place."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for name in ("DEFAULT", "PROBE"):
        monkeypatch.setattr(sources, name, "mixture:16")
    monkeypatch.setattr(sources, "PATCHES", 32)
    monkeypatch.setattr(sources, "PATCHES_PROBE", "mixture:16")
    from typer.testing import CliRunner

    from rankscope_cli.app import app

    commit = "0" * 40
    for model, config in (
        (script.MODELS[0], tiny_config("chronos-t5", num_decoder_layers=2)),
        (script.MODELS[1], tiny_config("chronos-bolt")),
    ):
        repository = tmp_path / "cache" / f"models--{model.replace('/', '--')}"
        write_checkpoint(repository / "snapshots" / commit, config)
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text(commit)
    (tmp_path / "data").mkdir()
    days = pd.date_range("2020-01-01", periods=200)
    values = 10 + np.random.default_rng(0).random(200)
    pd.DataFrame({"date": days, "a": values, "b": 2 * values}).to_csv(tmp_path / "data" / "nn5.csv", index=False)

    def in_process(command: list[str], cwd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
        assert command[:3] == [sys.executable, "-m", "rankscope_cli"]
        with monkeypatch.context() as here:
            here.chdir(cwd)
            result = CliRunner().invoke(app, command[3:], prog_name="rankscope")
        assert result.exit_code == 0, result.output
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(script, "subprocess", type("subprocess", (), {"run": staticmethod(in_process)}))
    folder, out = tmp_path / "verify", tmp_path / "published.json"
    words = ["published.py", "--folder", folder, "--tasks", "nn5", "--data", tmp_path / "data", "--out", out]
    monkeypatch.setattr(sys, "argv", [str(word) for word in words])
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 1
    scores = json.loads(out.read_text())["scores"]
    assert {one["model"] for one in scores} == {*script.MODELS, "seasonal-naive"}
    assert not any(one["held"] for one in scores)
    page = (folder / "report.html").read_text()
    for model in script.MODELS:
        name = model.rpartition("/")[2]
        report = json.loads((folder / name / "eval.json").read_text())
        assert {one["model"] for one in report["summary"]} == {f"{name}/{size}" for size in script.SIZES}
        assert model in page
    assert "published WQL" in page

    monkeypatch.setattr(script, "subprocess", type("subprocess", (), {"run": staticmethod(again(in_process))}))
    with pytest.raises(SystemExit):
        script.main()


def again(run: Callable[..., Any]) -> Callable[..., Any]:
    """Let the second run draw the page and do nothing else."""

    def only_report(command: list[str], **options: Any) -> Any:
        assert command[3] == "report"
        return run(command, **options)

    return only_report
