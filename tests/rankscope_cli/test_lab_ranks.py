"""``rankscope lab ranks``: its document, its table, its one-line errors, on untrained models."""

from __future__ import annotations

import json
import re
import shutil
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from rankscope.io import codec
from rankscope_lab.encoders.data import run_data
from rankscope_lab.encoders.models import build
from rankscope_lab.encoders.run_spec import Point, RunResult, RunSpec
from rankscope_lab.encoders.runs import write_result
from rankscope_lab.measure import measure, rank_record
from rankscope_lab.ranks.study import RankStudy
from rankscope_lab.slt.run_spec import Epoch, Score, WindowCounts
from rankscope_lab.slt.run_spec import RunResult as SltResult
from rankscope_lab.slt.run_spec import RunSpec as SltSpec


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audit")
    for seed in range(3):
        for encoder in ("linear", "linear-ppe"):
            spec = RunSpec(encoder, series=40, d_model=16, epochs=1, seed=seed)
            torch.manual_seed(seed)
            model = build(spec)
            ranks = rank_record(model, run_data(spec).validation.inputs)
            result = RunResult(spec, (Point(1, 3.0, 3.0, 0.1),), 1, 1, 1.0, diagnostics={"ranks": ranks})
            write_result(folder, result, model)
    return folder


def test_the_document(document: Any, audit: Path, tmp_path: Path) -> None:
    file = tmp_path / "ranks.json"
    result = document("lab", "ranks", audit, "--eps", "0.1", "--out", file)
    assert result["schema"] == "rankscope/lab-ranks@1"
    assert result["runs"] == {"encoders": 6}
    assert result["eps"] == ["0.1"]
    assert json.loads(file.read_text()) == result
    spec = RunSpec("linear-ppe", series=40, d_model=16, epochs=1)
    expected = []
    for seed in range(3):
        torch.manual_seed(seed)
        drawn = RunSpec("linear-ppe", series=40, d_model=16, epochs=1, seed=seed)
        expected.append(measure(build(drawn), run_data(drawn).validation.inputs).stream("input")[0].ranks)
    (row,) = (
        one for one in result["rows"] if (one["variant"], one["what"], one["layer"]) == (spec.encoder, "input", 0)
    )
    assert row["eps_ranks"]["0.1"] == pytest.approx(sum(one.eps_ranks["0.1"] for one in expected) / 3, rel=1e-4)
    assert row["effective"] == pytest.approx(sum(one.effective_rank for one in expected) / 3, rel=1e-4)


@pytest.mark.slow
def test_the_table_fits_a_terminal(cli: Any, audit: Path, tmp_path: Path) -> None:
    from rankscope_cli.verbs.lab_ranks import show_ranks

    few = shutil.copytree(audit, tmp_path / "few", ignore=shutil.ignore_patterns("*-s1.*", "*-s2.*"))
    result = cli("lab", "ranks", few, "--cut", "--out", tmp_path / "ranks.json")
    assert result.exit_code == 0, result.stderr
    assert re.search(r"linear-ppe +depth 3 .* 16 +1$", result.stdout, re.MULTILINE)
    assert "(a) Does linear-ppe raise the rank of the stream?" in result.stdout
    # a head of width 4 cannot be cut to an eighth, nothing here to a sixteenth
    assert re.search(r"linear +attention +joint +[\d.]+ +[\d.]+ +–$", result.stdout, re.MULTILINE)
    narrow = StringIO()
    study = codec.read(RankStudy, tmp_path / "ranks.json")
    show_ranks(study, Console(file=narrow, width=80, highlight=False))
    assert max(map(len, narrow.getvalue().splitlines())) <= 80
    assert len(study.curves) == 2 * (2 * 2 * 4 + 3)


@pytest.mark.slow
def test_bad_input(cli: Any, refused: Any, audit: Path, tmp_path: Path) -> None:
    assert "there is no folder or file" in refused("lab", "ranks", tmp_path / "nowhere")
    assert "no finished run" in refused("lab", "ranks", tmp_path)
    assert "no ranks at ε 0.3" in refused("lab", "ranks", audit, "--eps", "0.3")
    assert "did you mean '.json'" in refused("lab", "ranks", audit, "--out", "x.jsn")
    bare = tmp_path / "bare"
    bare.mkdir()
    name = f"{RunSpec('linear', series=40, d_model=16, epochs=1).id}.json"
    (bare / name).write_text((audit / name).read_text())
    assert "--cut needs weights" in refused("lab", "ranks", bare, "--cut")
    forecaster = SltSpec("ETTh1", "slt")
    scores = Score(1.0, 1.0)
    run = SltResult(forecaster, (Epoch(1, scores, scores, scores, 1.0),), 1, 1, WindowCounts(1, 1, 1))
    for folder in (tmp_path / "forecaster", few := shutil.copytree(audit, tmp_path / "few")):
        folder.mkdir(exist_ok=True)
        (folder / f"{forecaster.id}.json").write_text(codec.text(run))
        (folder / f"{forecaster.id}.safetensors").write_bytes(b"")
    for name in [one.name for one in few.iterdir() if "-s0." not in one.name]:
        (few / name).unlink()
    assert "tables of these 1 runs; give --data DIR" in refused("lab", "ranks", tmp_path / "forecaster", "--cut")
    result = cli("lab", "ranks", few, "--cut")
    assert result.exit_code == 0, result.stderr
    assert "1 of 3 runs were not truncated: give --data DIR" in result.stderr
