"""Documents of ``--json``: their versions, and that they hold what was asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize("flags", [(), ("--ranks-only",), ("--sites", "all")])
def test_spectrum(document: Any, chronos_t5_folder: Path, flags: tuple[str, ...]) -> None:
    result = document("spectrum", chronos_t5_folder, "--eps", "0.1", "--eps", "0.05,0.01", *flags)
    assert result["schema"] == "rankscope/spectrum@1"
    assert result["eps"] == [0.1, 0.05, 0.01]
    for site in result["sites"]:
        assert list(site["eps_ranks"]) == ["0.1", "0.05", "0.01"]
        attention = "." in site["role"]
        assert [len(ranks) for ranks in site["per_head_eps_ranks"].values()] == ([2, 2, 2] if attention else [])


def test_spectrum_file_holds_every_singular_value(cli: Any, chronos_t5_folder: Path, tmp_path: Path) -> None:
    result = cli("spectrum", chronos_t5_folder, "--out", tmp_path / "s.json")
    assert result.stderr == f"wrote {tmp_path / 's.json'}\n"
    saved = json.loads((tmp_path / "s.json").read_text())
    assert all(len(site["sigma"]) == min(site["shape"]) for site in saved["sites"])


@pytest.mark.parametrize("choice", [("--eps", "0.3"), ("--attention-ratio", "0.6")])
def test_compress(document: Any, chronos_t5_folder: Path, tmp_path: Path, choice: tuple[str, str]) -> None:
    result = document("compress", chronos_t5_folder, *choice, "--out", tmp_path / "small")
    assert result["schema"] == "rankscope/compress@2"
    assert {site["layout"] for site in result["sites"]} <= {"dense", "factored"}
    assert json.loads((tmp_path / "small" / "compress.json").read_text()) == result


def test_eval(document: Any, forecaster_folder: Path) -> None:
    few = ("--tasks", "nile,co2", "--num-samples", "2")
    result = document("eval", forecaster_folder, "naive", *few)
    assert result["schema"] == "rankscope/eval@1"
    assert {row["dataset"] for row in result["rows"]} == {"nile", "co2"}
    assert {row["baseline"] for row in result["summary"]} == {"seasonal-naive"}


def test_forecast(document: Any, forecaster_folder: Path, monthly_csv: Path) -> None:
    few = ("--horizon", "3", "--quantiles", "0.1,0.9", "--num-samples", "4")
    result = document("forecast", forecaster_folder, "--input", monthly_csv, *few)
    assert result["schema"] == "rankscope/forecast@1"
    for series in result["series"]:
        assert list(series["quantiles"]) == ["0.1", "0.9"]
        assert len(series["mean"]) == len(series["timestamps"]) == 3
