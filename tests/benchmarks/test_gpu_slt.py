"""Tables that a script for GPUs makes of a finished study: the hour before it is not spent to find a misspelt key."""

from __future__ import annotations

import importlib.util
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from rankscope_lab.slt.run_spec import Epoch, RunResult, RunSpec, Score, WindowCounts

GPU = Path(__file__).parents[2] / "benchmarks" / "gpu"


def ran(model: str, seed: int, mse: float) -> RunResult:
    epochs = (Epoch(1, Score(1.0, 1.0), Score(mse, mse), Score(mse, mse), 1.0),)
    return RunResult(RunSpec("made", model, seed=seed, epochs=1), epochs, 100, 7, WindowCounts(9, 8, 7))


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """The script as it is run from its own folder, with runs and tables in a temporary one."""
    for name in ("OUT", "RUNS"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setattr(sys, "path", [str(GPU), *sys.path])
    for name in ("training", "gpu_slt"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    spec = importlib.util.spec_from_file_location("gpu_slt", GPU / "slt.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("training", None)


def test_the_table_after_each_seed(script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    errors = {"slt": [0.44, 0.43, 0.45], "patchtst": [0.46, 0.44, 0.48]}
    seen: list[int] = []

    def run_specs(specs: list[RunSpec], data: Path, out: Path, **options: object) -> list[RunResult]:
        seeds = 1 + max(spec.seed for spec in specs)
        seen.append(seeds)
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{seeds}.json").write_text("{}")
        found = [ran(model, seed, errors[model][seed]) for model in errors for seed in range(seeds)]
        return [*found, *[ran("slt", 3, float("nan"))] * (seeds == 3)]

    monkeypatch.setattr("rankscope_lab.slt.runs.run_specs", run_specs)
    monkeypatch.setattr(script, "SEEDS", 3)
    script.study(tmp_path, ["made"])
    assert seen == [1, 2, 3]
    stored = json.loads((tmp_path / "out" / "slt.json").read_text())
    rows = {row["model"]: row for row in stored["rows"]}
    assert rows["slt"]["mse"] == pytest.approx(0.44)
    assert (rows["slt"]["runs"], rows["slt"]["diverged"]) == (3, 1)
    gap = rows["slt − patchtst"]
    assert gap["mse"] == pytest.approx(-0.02)
    assert (gap["runs"], gap["p"] < 0.1) == (3, True)
    assert rows["slt − patchtst, same time"]["mse"] is not None
    assert zipfile.ZipFile(tmp_path / "out" / "slt-runs.zip").namelist() == ["1.json", "2.json", "3.json"]
