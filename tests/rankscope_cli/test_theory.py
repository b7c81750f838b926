"""``rankscope theory``: its document, its exit codes, its one-line errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rankscope.io import codec
from rankscope_paper import bounds
from rankscope_paper.experiments import F3Result


def test_the_document(document: Any) -> None:
    result = document("theory", "thm2", "thm3", "--instances", "20")
    assert result["schema"] == "rankscope/theory@1"
    assert result["pass"] is True
    assert [check["id"] for check in result["checks"]] == ["thm2", "thm3"]
    for check in result["checks"]:
        assert check["instances"] == 20
        assert 0 < check["worst_ratio"] <= 1 + 1e-9
        assert check["pass"] is True
        assert "seed 0" in check["worst"]
    again = document("theory", "thm2", "thm3", "--instances", "20")
    for check in (*result["checks"], *again["checks"]):
        del check["seconds"]
    assert result == again


def test_a_check_that_fails_is_exit_code_1(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "theorem2_count", lambda eps, k: k / 2)
    result = cli("theory", "thm2", "--instances", "12")
    assert result.exit_code == 1
    assert "FAILED" in result.stdout
    assert result.stderr.startswith("failed: thm2: ratio ")


def test_the_table_shows_what_is_printed_wrongly(cli: Any) -> None:
    result = cli("theory", "cor1-lower", "--instances", "40")
    assert result.exit_code == 0
    assert "as printed (the range alone: the same for k ≤ d − d_h) it fails at" in result.stdout


def test_experiments_give_their_data(cli: Any, tmp_path: Path) -> None:
    result = cli("theory", "f3", "--quick", "--out", tmp_path / "f3.json", "--json")
    assert result.exit_code == 0, result.stderr
    (saved,) = json.loads((tmp_path / "f3.json").read_text())["experiments"]
    assert codec.parse(F3Result, saved).quick
    assert "experiments" not in json.loads(result.stdout)


def test_bad_input(refused: Any) -> None:
    assert "did you mean 'thm2'" in refused("theory", "thm22")
    assert "mutually exclusive" in refused("theory", "thm2", "--all")
    assert "leave it out with --model" in refused("theory", "--model", "bundled-bolt", "-n", "3")
    assert "leave one out" in refused("theory", "thm2", "--quick", "-n", "3")
    assert "no meaning for experiments" in refused("theory", "f3", "-n", "3")
    assert "--revision requires --model MODEL" in refused("theory", "thm2", "--revision", "main")


def test_hypotheses_that_are_not_met_are_exit_code_2_if_asked_for_by_id(cli: Any) -> None:
    result = cli("theory", "thm2", "--model", "bundled", "--quick")
    assert result.exit_code == 2
    assert result.stdout == ""
    # transformers draws a bar while it loads weights
    assert "hypotheses of Theorem 2 are not met by bundled: the model has no two" in result.stderr.splitlines()[-1]
