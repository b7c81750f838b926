"""``rankscope sweep``: plans, runs, goes on, fails where a point fails, and refuses what makes no sense."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

BASE: dict[str, Any] = {
    "model": {
        "d_model": 8,
        "d_kv": 4,
        "d_ff": 8,
        "num_layers": 1,
        "num_decoder_layers": 1,
        "num_heads": 2,
        "n_tokens": 32,
    },
    "context": 16,
    "horizon": 4,
    "bank_kernels": 0,
    "max_steps": 4,
    "batch_size": 2,
    "warmup_steps": 1,
    "save_steps": 2,
    "log_steps": 1,
}


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """Write a sweep of two points."""
    return write(tmp_path / "toy.yaml", {"a": {}, "b": {"model.num_heads": 1}})


def write(file: Path, points: dict[str, Any]) -> Path:
    file.write_text(
        yaml.safe_dump({"base": BASE, "points": points, "eps": [0.1], "about": "two toys"}, sort_keys=False)
    )
    return file


def test_a_plan_lists_points_parameters_and_steps(cli, document, toy, tmp_path):
    plan = document("sweep", toy, "--out", tmp_path / "out", "--dry-run", "--steps", 3, "--seed", 5)
    assert plan["schema"] == "rankscope/sweep-plan@1"
    a, b = plan["points"]
    # vocabulary, 3 attentions with 2 heads of 4, 2 feed-forward layers, 2 position biases, 7 layer norms
    assert a["parameters"] == 32 * 8 + 12 * 64 + 4 * 64 + 2 * 64 + 7 * 8
    assert b["parameters"] == a["parameters"] - 12 * 32 - 64
    assert [(p["steps"], p["steps_left"], p["state"]) for p in (a, b)] == [(3, 3, "waiting")] * 2
    assert b["fields"] == {"model.num_heads": 1, "seed": 5}
    assert not (tmp_path / "out").exists()
    shown = cli("sweep", toy, "--out", tmp_path / "out", "--dry-run", "--only", "b").stdout
    assert "model.num_heads 1" in shown
    assert "1 points, 4 steps left" in shown


def test_a_run_is_one_document_and_the_next_one_finds_it_done(cli, document, toy, tmp_path):
    out = tmp_path / "out"
    first = document("sweep", toy, "--out", out, "--device", "cpu")
    assert (first["schema"], first["name"], first["about"], first["eps"]) == (
        "rankscope/sweep@1",
        "toy",
        "two toys",
        [0.1],
    )
    assert [(p["point"], p["state"], p["steps"]) for p in first["points"]] == [("a", "done", 4), ("b", "done", 4)]
    assert json.loads((out / "sweep.json").read_text()) == first
    written = (out / "points" / "a" / "model.safetensors").stat().st_mtime_ns
    again = cli("sweep", toy, "--out", out, "--device", "cpu")
    assert again.exit_code == 0
    assert (out / "points" / "a" / "model.safetensors").stat().st_mtime_ns == written
    header, a, b = (line.split() for line in again.stdout.splitlines() if line.split()[0] in ("point", "a", "b"))
    ranks = first["points"][0]["ranks"]["mean_ranks"]["all"]["0.1"]
    assert dict(zip(header, a, strict=True))["ε=0.1"] == f"{ranks:.1f}"
    assert b[:2] == ["b", "done"]
    assert f"wrote {out}/sweep.json" in again.stderr.replace("\n", "")


@pytest.mark.slow
def test_a_failed_point_is_named_and_the_exit_code_is_one(cli, tmp_path):
    toy = write(tmp_path / "toy.yaml", {"bad": {"learning_rate": 1e30}, "good": {}})
    result = cli("sweep", toy, "--out", tmp_path / "out", "--device", "cpu")
    assert result.exit_code == 1
    failures = [line for line in result.stderr.splitlines() if line.startswith("failed: ")]
    assert len(failures) == 1
    assert failures[0].startswith("failed: bad: ")
    assert "Traceback" not in result.stderr
    assert (tmp_path / "out" / "points" / "good" / "config.json").exists()
    assert json.loads((tmp_path / "out" / "sweep.json").read_text())["points"][0]["state"] == "failed"


def test_points_are_scored_on_a_suite(document, toy, tmp_path):
    (tmp_path / "s.csv").write_text(
        "date,x\n" + "".join(f"{2018 + m // 12}-{m % 12 + 1:02d}-01,{m * m % 11 + 1}\n" for m in range(40))
    )
    suite = tmp_path / "one.yaml"
    suite.write_text("- {name: s, prediction_length: 4, offset: -4, file: [s.csv]}\n")
    options = ("--only", "a", "--device", "cpu", "--score", suite, "--data", tmp_path, "--num-samples", 2)
    a, b = document("sweep", toy, "--out", tmp_path / "out", *options)["points"]
    assert set(a["scores"]) == {"WQL", "MASE", "relative_WQL", "relative_MASE", "forecast_seconds"}
    assert a["scores"]["MASE"] > 0
    how, contents = a["scored_with"].split(", contents ")
    assert how == f"{suite}, data {tmp_path}, 2 samples"
    assert (b["state"], b["scores"]) == ("waiting", {})
    (tmp_path / "s.csv").write_text((tmp_path / "s.csv").read_text().replace(",1\n", ",9\n"))
    again, _ = document("sweep", toy, "--out", tmp_path / "out", *options)["points"]
    assert again["scored_with"].startswith(how)
    assert not again["scored_with"].endswith(contents)
    assert again["scores"]["WQL"] != a["scores"]["WQL"]
    assert again["loss"] == a["loss"]


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("widht",), "did you mean 'width'"),
        (("width", "--only", "d-46"), "did you mean 'd-64'"),
        (("width", "--address", "auto"), "it needs engine ray"),
        (("width", "--data", "."), "requires --score SUITE"),
        (("width", "--num-samples", "2"), "--num-samples requires --score SUITE or --input FILE"),
        (("width", "--score", "embeded"), "did you mean 'embedded'"),
        (("width", "--steps", "0"), "--steps"),
        (("width", "--jobs", "-1"), "--jobs"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(refused, tmp_path, monkeypatch, args, part):
    monkeypatch.chdir(tmp_path)
    assert part in refused("sweep", *args, "--out", "out")
    assert not list(tmp_path.iterdir())


def test_another_config_in_the_same_folder_is_refused(cli, refused, toy, tmp_path):
    assert cli("sweep", toy, "--out", tmp_path / "out", "--only", "a", "--device", "cpu").exit_code == 0
    line = refused("sweep", toy, "--out", tmp_path / "out", "--steps", 9, "--device", "cpu")
    assert "point 'a'" in line
    assert "--force" in line
