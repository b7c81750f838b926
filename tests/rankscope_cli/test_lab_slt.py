"""``rankscope lab slt``: its document, its folder, its tables, its one-line errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rankscope_cli.verbs.lab_slt import show_slt

SMALL = ("--lookback", "48", "--horizon", "8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 300 hours and two variables."""
    place = tmp_path_factory.mktemp("tables")
    t = np.arange(300)
    values = {"a": np.sin(2 * np.pi * t / 24), "b": np.cos(2 * np.pi * t / 24) + t % 5}
    pd.DataFrame({"date": pd.date_range("2020-01-01", periods=300, freq="h"), **values}).to_csv(
        place / "Made.csv", index=False
    )
    return place


@pytest.fixture(scope="module")
def ran(folder: Path, cli: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Folder and document of a study of two models that take no time, and seasonal naive."""
    out = tmp_path_factory.mktemp("runs") / "slt"
    words = ("--datasets", "made", "--models", "dlinear,nbeats,naive", "--epochs", "1", "--seeds", "2", *SMALL)
    result = cli("lab", "slt", "--data", folder, "--out", out, *words, "--protocol", "both", "--json")
    assert result.exit_code == 0, result.stderr
    return out, json.loads(result.stdout)


def test_the_document_and_the_folder(ran: tuple[Path, dict[str, Any]]) -> None:
    out, document = ran
    assert document["schema"] == "rankscope/lab-slt@1"
    assert document["runs"] == 2 * (2 * 2 + 1)
    rows = {(row["protocol"], row["model"]): row for row in document["rows"]}
    assert set(rows) == {(p, m) for p in ("released", "field") for m in ("dlinear", "nbeats", "naive")}
    assert rows["released", "dlinear"]["mse"]["n"] == 2
    assert rows["released", "dlinear"]["parameters"] == 2 * (48 * 8 + 8)
    assert rows["released", "naive"]["mse"]["std"] is None
    assert len(list(out.glob("Made-*.json"))) == 10
    assert json.loads((out / "slt.json").read_text())["rows"] == document["rows"]
    assert len(pd.read_csv(out / "slt.csv")) == 6


def test_the_season_is_forecast_exactly_by_repeating_it(ran: tuple[Path, dict[str, Any]], folder: Path) -> None:
    """Variable a is a sine of 24 hours: naive's error comes from b, whose t mod 5 does not repeat."""
    _, document = ran
    (row,) = (one for one in document["rows"] if (one["protocol"], one["model"]) == ("released", "naive"))
    b = pd.read_csv(folder / "Made.csv")["b"].to_numpy()
    scaled = (b - b[:180].mean()) / b[:180].std()
    windows = range(240, 300 - 56 + 1)
    gaps = [scaled[start + 48 + step] - scaled[start + 24 + step] for start in windows for step in range(8)]
    assert row["mse"]["mean"] == pytest.approx(np.mean(np.square(gaps)) / 2, rel=1e-4)


def test_a_second_command_trains_what_is_missing(ran: tuple[Path, dict[str, Any]], cli: Any, folder: Path) -> None:
    out, _ = ran
    before = {file: file.stat().st_mtime_ns for file in out.glob("Made-*.json")}
    words = ("--datasets", "Made", "--models", "dlinear,head", "--epochs", "1", "--seeds", "1", *SMALL)
    result = cli("lab", "slt", "--data", folder, "--out", out, *words, "--ablation", "attention")
    assert result.exit_code == 0, result.stderr
    assert "Is attention needed" in result.stdout
    after = {file: file.stat().st_mtime_ns for file in out.glob("Made-*.json")}
    assert {file: after[file] for file in before} == before
    made = {file.stem.removeprefix("Made-released-l48-h8-") for file in after.keys() - before.keys()}
    assert made == {"head-e1-s0", "slt-e1-s0", "projections-e1-s0"}


def test_tables_fit_a_terminal() -> None:
    from rich.console import Console

    from rankscope_lab.slt.ablations import ABLATIONS
    from rankscope_lab.slt.models import MODELS
    from rankscope_lab.slt.report import study_report
    from rankscope_lab.slt.run_spec import Epoch, RunResult, RunSpec, Score, WindowCounts

    score = Score(0.43871, 0.44123)
    runs = [
        RunResult(
            RunSpec(dataset, model, protocol, revin, seed),
            (Epoch(1, score, score, Score(0.4387 + 0.01 * seed, 0.44), 123.4),),
            1_181_920,
            7,
            WindowCounts(1, 1, 1),
            (12_345.6, 1.0, 1.0),
            "x86_64, 1 of 2 threads",
        )
        for dataset in ("ETTh1", "Weather")
        for protocol in ("released", "field")
        for model in MODELS
        for revin in (False, True)
        for seed in (0, 1, 2)
    ]
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    show_slt(study_report(runs, list(ABLATIONS)), console)
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80, max(lines, key=len)
    shown = "\n".join(lines)
    assert "0.4487 ±.0100" in shown
    assert "within: no farther apart than the two values" in shown
    assert "within: at most two standard deviations" in shown


def test_bad_input_is_one_line(refused: Any, folder: Path, tmp_path: Path) -> None:
    def said(*words: str) -> str:
        return refused("lab", "slt", "--data", folder, "--out", tmp_path / "slt", *words)

    assert "did you mean 'Made'" in said("--datasets", "Mad")
    assert "did you mean 'dlinear'" in said("--datasets", "Made", "--models", "dliner")
    assert "did you mean 'offset'" in said("--datasets", "Made", "--ablation", "ofset")
    assert "choose a horizon of at most 12" in said("--datasets", "Made", "--lookback", "48", "--horizon", "13")
    assert "leave out --seeds" in said("--quick", "--seeds", "2")
    assert not (tmp_path / "slt").exists()
