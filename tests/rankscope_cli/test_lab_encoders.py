"""``rankscope lab encoders``: which runs it asks for, its tables, its document, its one-line errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rankscope.errors import DataError
from rankscope.io import codec
from rankscope.io.run_store import locked
from rankscope_lab.encoders import runs
from rankscope_lab.encoders.published import published_value
from rankscope_lab.encoders.run_spec import Point, RunResult, RunSpec
from rankscope_lab.encoders.training import ComputeOptions

Asked = dict[str, Any]


def made_up(spec: RunSpec) -> RunResult:
    """A run with the printed mean of Table 1, moved by its seed."""
    printed = published_value("1", "C=4", spec.encoder, "nll")
    loss = (printed.mean if printed else 2.0) + 0.002 * (spec.seed % 2)
    depths = [[0.9] * spec.channels] * 4
    masked = {"none": 0.2, "masked": [0.1, 0.13, 0.11, 0.19] + [0.2] * (spec.channels - 4)}
    diagnostics: dict[str, Any] = {"probe": depths, "mask": masked, "gram": {"mean": 0.04, "max": 0.09}}
    points = (Point(spec.epochs, 2.0, loss, 0.2),)
    return RunResult(spec, points, 100, 50, 2.0, diagnostics=diagnostics, machine="made up")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Arguments that the verb gave `run_specs`; no run is made."""
    seen: Asked = {}

    def run_specs(specs: Sequence[RunSpec], folder: str, **how: Any) -> list[RunResult]:
        seen.update(how, specs=list(specs), folder=folder)
        Path(folder).mkdir(exist_ok=True)
        return [made_up(spec) for spec in specs]

    monkeypatch.setattr(runs, "run_specs", run_specs)
    return seen


def test_quick_is_the_drop_in_encoders_and_says_so(cli: Any, asked: Asked, tmp_path: Path) -> None:
    result = cli("lab", "encoders", "--quick", "--out", tmp_path / "audit", "--device", "cpu")
    assert result.exit_code == 0, result.stderr
    assert len(asked["specs"]) == 12
    assert {spec.encoder for spec in asked["specs"]} == {
        "sum", "concat", "linear", "linear-ortho", "mlp", "linear-ppe"
    }  # fmt: skip
    assert {(spec.channels, spec.epochs) for spec in asked["specs"]} == {(4, 40)}
    assert "Not the paper's protocol: 2 seeds × 40 epochs" in result.stdout
    assert "Left out: ci, cat." in result.stdout


def test_the_papers_size_is_the_default(cli: Any, asked: Asked, tmp_path: Path) -> None:
    result = cli("lab", "encoders", "--out", tmp_path / "audit", "--device", "cpu", "--jobs", 3)
    assert len(asked["specs"]) == 8 * 20
    assert {spec.epochs for spec in asked["specs"]} == {300}
    assert asked["engine"].jobs == 3
    assert asked["how"] == ComputeOptions()
    cli("lab", "encoders", "--out", tmp_path / "audit", "--device", "cpu")
    assert asked["engine"].jobs == 0  # a core each
    assert "Not the paper's protocol" not in result.stdout
    assert "160 of 160 runs" in result.stdout


def test_tables_fit_a_terminal(cli: Any, asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rankscope_cli import output

    monkeypatch.setattr(output, "_PIPE_WIDTH", 80)
    monkeypatch.setattr(runs, "stored_runs", lambda folder, specs: [made_up(spec) for spec in specs])
    tables = ("1", "4", "9", "11", "12", "large", "paired", "findings")  # the widest of each kind
    result = cli("lab", "encoders", *tables, "--show", "--out", tmp_path, "--seeds", 2)
    assert result.exit_code == 0, result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert all(f"Table {number}:" in result.stdout for number in (1, 4, 9, 11, 12))
    starred = [line.split()[:2] for line in result.stdout.splitlines() if re.search(r"\d\* ", line)]
    assert len(starred) == 8
    assert starred.count(["linear", "concat"]) == 3
    assert "*: not in the paper's text, computed from its released runs." in result.stdout
    assert "linear 2.156 ± 0.001 2/2 2.155 ± 0.019 +0.001 within" in " ".join(result.stdout.split())


def test_the_document_and_the_files(document: Callable[..., Any], asked: Asked, tmp_path: Path) -> None:
    out = tmp_path / "audit"
    found = document("lab", "encoders", "1", "9", "--out", out, "--encoders", "linear,mlp", "--device", "cpu")
    assert found["schema"] == "rankscope/lab-encoders@1"
    assert found["protocol"] == {
        "seeds": 20, "epochs": 300, "encoders": ["linear", "mlp"], "published": True, "warning": ""
    }  # fmt: skip
    assert found["runs"] == {"there": 40, "needed": 40, "diverged": 0, "cut_short": 0, "rounded": 0}
    first, ninth = found["tables"]
    (row,) = [one for one in first["rows"] if (one["encoder"], one["measure"]) == ("linear", "nll")]
    assert row["summary"]["mean"] == pytest.approx(2.156)
    assert row["published"] == {"mean": 2.155, "std": 0.019, "interval": None}
    assert (row["verdict"], row["summary"]["n"], len(row["values"])) == ("within", 20, 20)
    assert [(check["subject"], check["seeds"], check["n"]) for check in ninth["checks"]] == [
        ("linear", 20, 20),
        ("mlp", 20, 20),
    ]
    assert json.loads((out / "audit.json").read_text())["tables"] == found["tables"]
    frame = pd.read_csv(out / "audit.csv")
    assert list(frame[frame.measure == "nll"].encoder) == ["linear", "mlp"]


def test_show_trains_nothing_and_says_what_is_missing(cli: Any, asked: Asked, tmp_path: Path) -> None:
    kept = made_up(RunSpec("linear", seed=0))
    (tmp_path / f"{kept.spec.id}.json").write_text(codec.text(kept))
    result = cli("lab", "encoders", "1", "--show", "--seeds", "2", "--encoders", "linear,sum", "--out", tmp_path)
    assert result.exit_code == 0, result.stderr
    assert asked == {}
    assert "3 of 4 runs are missing (sum, linear)" in result.stdout
    assert "Fewer seeds than the paper's 20: 2. 3 of 4 runs: missing." in result.stdout
    assert "1 of 4 runs" in result.stdout


def test_force_forgets_nothing_while_another_process_makes_runs(refused: Any, tmp_path: Path) -> None:
    spec = RunSpec("linear")
    for suffix in (".json", ".state", ".safetensors"):
        (tmp_path / f"{spec.id}{suffix}").write_text(codec.text(made_up(spec)))
    ours = ("--encoders", "linear", "--seeds", 1, "--force", "--device", "cpu", "--out", tmp_path)
    with locked(tmp_path / ".lock", "the test"):
        assert "is being made by another process" in refused("lab", "encoders", *ours)
    assert "does not exist" in refused("lab", "encoders", "13", "--data", tmp_path / "ETTh9.csv", *ours)
    assert len(list(tmp_path.glob(f"{spec.id}.*"))) == 3


def test_runs_in_another_precision_are_not_passed_off_as_these(cli: Any, refused: Any, tmp_path: Path) -> None:
    made = replace(made_up(RunSpec("linear")), precision="bfloat16")
    (tmp_path / f"{made.spec.id}.json").write_text(codec.text(made))
    ours = ("lab", "encoders", "--encoders", "linear", "--seeds", 1, "--device", "cpu", "--out", tmp_path)
    assert "was run in bfloat16, not in float32: choose another --out" in refused(*ours)
    result = cli(*ours, "--show")
    assert "1 of 1 runs: in bfloat16." in result.stdout


def test_bad_input(refused: Any, asked: Asked, tmp_path: Path) -> None:
    out = ("--out", tmp_path)
    assert "Choose from 1, 2" in refused("lab", "encoders", "14", *out)
    assert "did you mean 'linear-ppe'" in refused("lab", "encoders", "--encoders", "linear-pe", *out)
    assert "--data" in refused("lab", "encoders", "13", *out)
    assert "does not exist" in refused("lab", "encoders", "13", "--data", tmp_path / "ETTh9.csv", *out)
    assert "have no row of ci" in refused("lab", "encoders", "5", "--encoders", "ci", *out)
    assert "mutually exclusive" in refused("lab", "encoders", "--show", "--force", *out)
    assert "no such folder" in refused("lab", "encoders", "--show", "--out", tmp_path / "nowhere")
    assert "--precision" in refused("lab", "encoders", "--precision", "int8", *out)
    assert "--engine" in refused("lab", "encoders", "--engine", "slurm", *out)
    assert asked == {}


def test_a_damaged_run_is_named(refused: Any, tmp_path: Path) -> None:
    spec = RunSpec("linear")
    (tmp_path / f"{spec.id}.json").write_text("{}")
    assert spec.id in refused("lab", "encoders", "--show", "--encoders", "linear", "--out", tmp_path)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (DataError("series 'a' is\nempty."), 2, "error: series 'a' is empty."),
        (KeyError("lost"), 1, "error: KeyError: 'lost'"),
        (KeyboardInterrupt(), 130, "stopped: rerun the same command to resume."),
    ],
)
def test_errors_in_the_runs(
    cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException, code: int, said: str
) -> None:
    def fail(*args: Any, **how: Any) -> None:
        raise error

    monkeypatch.setattr(runs, "run_specs", fail)
    result = cli("lab", "encoders", "--out", tmp_path / "audit", "--device", "cpu")
    assert result.exit_code == code
    assert result.stdout == ""
    assert said in result.stderr
    assert not (tmp_path / "audit").exists()


@pytest.mark.slow
def test_one_real_run_from_the_command_line(document: Callable[..., Any], tmp_path: Path) -> None:
    args = ("lab", "encoders", "1", "5", "--encoders", "linear", "--seeds", 1, "--epochs", 40, "--device", "cpu")
    found = document(*args, "--stop", 1, "--out", tmp_path)
    assert found["runs"] == {"there": 1, "needed": 1, "diverged": 0, "cut_short": 1, "rounded": 0}
    assert found["protocol"]["published"] is False
    assert found["protocol"]["warning"].endswith("1 of 1 runs: cut short.")
    values = {row["measure"]: row["summary"]["mean"] for table in found["tables"] for row in table["rows"]}
    assert all("1 run is cut short, the shortest after epoch 1." in table["notes"] for table in found["tables"])
    assert values["encoder_parameters"] == 512
    assert 2.9 < values["nll"] < 3.6  # after one epoch: near the entropy of 32 bins, 3.47
    assert 0 < values["cos_mean"] < 0.3
    assert document(*args, "--show", "--out", tmp_path) == found


def test_the_help(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = cli("lab", "encoders", "--help")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert 2 <= result.stdout.count("  rankscope lab encoders") <= 4
