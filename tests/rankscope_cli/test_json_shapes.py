"""The versioned shapes of ``--json``: which keys there are, and what is under them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NUMBER = (int, float)
OPTIONAL = (int, float, type(None))
SPECTRUM = {"schema": str, "model": str, "eps": [NUMBER], "size_ratio": {str: NUMBER}, "ranks_only": bool}
SPECTRUM["sites"] = [
    {
        "name": str,
        "stack": str,
        "layer": (int, type(None)),
        "role": str,
        "layout": str,
        "shape": [int],
        "sigma_max": NUMBER,
        "eps_ranks": {str: int},
        "per_head_eps_ranks": {str: [int]},
        "effective_rank": OPTIONAL,
        "stable_rank": OPTIONAL,
        "size_ratio": {str: NUMBER},
    }
]
COUNTS = {"before": int, "after": int}
COMPRESS = {"schema": str, "model": str, "out": str, "eps": NUMBER, "ratio": NUMBER, "storage": str}
COMPRESS |= {"parameters": COUNTS, "selected_parameters": COUNTS, "bytes": COUNTS}
COMPRESS["sites"] = [{"name": str, "layout": str, "rank": int, "shape": [int], "relative_error": NUMBER}]
EVAL = {"schema": str, "suite": str, "seed": int}
EVAL["rows"] = [{"benchmark": str, "dataset": str, "model": str, "MASE": OPTIONAL, "WQL": OPTIONAL}]
EVAL["summary"] = [
    {
        "model": str,
        "baseline": str,
        "benchmark": str,
        "datasets": int,
        "relative_MASE": OPTIONAL,
        "relative_WQL": OPTIONAL,
    }
]
FLOW = {"schema": str, "model": str, "signal": str, "n": int, "length": int, "seed": int, "eps": [NUMBER]}
FLOW["layers"] = [
    {
        "stack": str,
        "layer": int,
        "tokens": int,
        "sigma": [NUMBER],
        "eps_ranks": {str: int},
        "effective_rank": NUMBER,
        "weight_eps_ranks": {str: {str: int}},
    }
]
EMBED = {"schema": str, "signal": str, "n": int, "length": int, "seed": int, "eps": [NUMBER]}
EMBED["rows"] = [
    {
        "model": str,
        "family": str,
        "patch_size": int,
        "matrix": str,
        "tokens": int,
        "d_model": int,
        "sigma": [NUMBER],
        "eps_ranks": {str: int},
        "effective_rank": NUMBER,
        "stable_rank": NUMBER,
        "angles": [[OPTIONAL]],
        "projection": {"points": [[NUMBER]], "colour": [OPTIONAL], "colour_name": str},
    }
]
FORECAST = {"schema": str, "model": str, "horizon": int}
FORECAST["series"] = [{"item_id": str, "timestamps": [str], "mean": [NUMBER], "quantiles": {str: [NUMBER]}}]
SPREAD = {"median": NUMBER, "min": NUMBER, "max": NUMBER}
TABLE2 = {"schema": str, "model": str, "family": str, "settings": {"suite": str, "seed": int, "device": str}}
TABLE2["original"] = {"parameters": int, "bytes": int, "cache_bytes": int, "LPPL": OPTIONAL}
TABLE2["rows"] = [
    {
        "ratio": NUMBER,
        "method": str,
        "allocation": str,
        "seeds": list,
        "state": str,
        "reason": str,
        "reached": SPREAD,
        "relative_WQL": SPREAD,
        "relative_MASE": SPREAD,
        "relative_LPPL": type(None),
        "overlap": type(None),
        "quantile_distance": SPREAD,
        "parameters": SPREAD,
        "bytes": SPREAD,
        "cache_bytes": SPREAD,
        "compress_seconds": SPREAD,
        "forecast_seconds": SPREAD,
        "time_ratio": SPREAD,
    }
]
TABLE2["points"] = [
    {
        "name": str,
        "ratio": NUMBER,
        "method": str,
        "allocation": str,
        "seed": (int, type(None)),
        "state": str,
        "reason": str,
        "measures": {"reached": NUMBER, "relative_WQL": NUMBER, "overlap": OPTIONAL},
        "scores": [{"benchmark": str, "dataset": str, "WQL": OPTIONAL, "MASE": OPTIONAL}],
    }
]
SMALL = ("--n", "2", "--length", "16")


def check(value: Any, shape: Any, where: str = "$") -> None:
    if isinstance(shape, list):
        assert isinstance(value, list), where
        assert value, f"{where} is empty"
        for position, item in enumerate(value):
            check(item, shape[0], f"{where}[{position}]")
    elif isinstance(shape, dict) and list(shape) == [str]:
        assert isinstance(value, dict), where
        for key, item in value.items():
            check(item, shape[str], f"{where}.{key}")
    elif isinstance(shape, dict):
        assert isinstance(value, dict), where
        for key, inner in shape.items():
            assert key in value, f"{where}.{key} is missing"
            check(value[key], inner, f"{where}.{key}")
    else:
        assert isinstance(value, shape), f"{where} is {value!r}"


def test_the_checker_finds_what_is_missing() -> None:
    with pytest.raises(AssertionError, match="missing"):
        check({"schema": "x"}, SPECTRUM)
    with pytest.raises(AssertionError, match="eps"):
        check({**dict.fromkeys(SPECTRUM, "x"), "eps": ["a"]}, SPECTRUM)


@pytest.mark.parametrize("flags", [(), ("--ranks-only",), ("--sites", "all")])
def test_spectrum(document: Any, chronos_t5_folder: Path, flags: tuple[str, ...]) -> None:
    result = document("spectrum", chronos_t5_folder, "--eps", "0.1", "--eps", "0.05,0.01", *flags)
    assert result["schema"] == "rankscope/spectrum@1"
    assert result["eps"] == [0.1, 0.05, 0.01]
    check(result, SPECTRUM)
    for site in result["sites"]:
        assert list(site["eps_ranks"]) == ["0.1", "0.05", "0.01"]
        attention = "." in site["role"]
        assert [len(ranks) for ranks in site["per_head_eps_ranks"].values()] == ([2, 2, 2] if attention else [])


def test_spectrum_file_holds_every_singular_value(cli: Any, chronos_t5_folder: Path, tmp_path: Path) -> None:
    result = cli("spectrum", chronos_t5_folder, "--out", tmp_path / "s.json")
    assert result.stderr == f"wrote {tmp_path / 's.json'}\n"
    saved = json.loads((tmp_path / "s.json").read_text())
    check(saved, SPECTRUM)
    assert all(len(site["sigma"]) == min(site["shape"]) for site in saved["sites"])


@pytest.mark.parametrize("choice", [("--eps", "0.3"), ("--ratio", "0.6")])
def test_compress(document: Any, chronos_t5_folder: Path, tmp_path: Path, choice: tuple[str, str]) -> None:
    result = document("compress", chronos_t5_folder, *choice, "--out", tmp_path / "small")
    assert result["schema"] == "rankscope/compress@1"
    check(result, COMPRESS)
    assert {site["layout"] for site in result["sites"]} <= {"dense", "factored"}
    assert json.loads((tmp_path / "small" / "compress.json").read_text()) == result


def test_eval(document: Any, forecaster_folder: Path) -> None:
    few = ("--tasks", "nile,co2", "--num-samples", "2")
    result = document("eval", forecaster_folder, "naive", *few)
    assert result["schema"] == "rankscope/eval@1"
    check(result, EVAL)
    assert {row["dataset"] for row in result["rows"]} == {"nile", "co2"}
    assert {row["baseline"] for row in result["summary"]} == {"seasonal-naive"}


def test_table2(document: Any, bolt_folder: Path, monthly_csv: Path, tmp_path: Path) -> None:
    suite = tmp_path / "one.yaml"
    suite.write_text(f"- {{name: s, prediction_length: 4, offset: -4, file: [{monthly_csv.name}]}}\n")
    few = ("-r", "0.6", "-m", "svd", "--suite", suite, "--overlap-series", "3")
    result = document("table2", bolt_folder, *few, "--out", tmp_path / "out")
    assert result["schema"] == "rankscope/table2@1"
    check(result, TABLE2)


@pytest.mark.parametrize("family", ["chronos_t5_folder", "bolt_folder"])
def test_flow_and_embed(document: Any, request: pytest.FixtureRequest, family: str) -> None:
    folder = request.getfixturevalue(family)
    flow = document("flow", folder, *SMALL)
    assert flow["schema"] == "rankscope/flow@1"
    check(flow, FLOW)
    embed = document("embed", folder, *SMALL)
    assert embed["schema"] == "rankscope/embed@1"
    check(embed, EMBED)


def test_forecast(document: Any, forecaster_folder: Path, monthly_csv: Path) -> None:
    few = ("--horizon", "3", "--quantiles", "0.1,0.9", "--num-samples", "4")
    result = document("forecast", forecaster_folder, "--input", monthly_csv, *few)
    assert result["schema"] == "rankscope/forecast@1"
    check(result, FORECAST)
    for series in result["series"]:
        assert list(series["quantiles"]) == ["0.1", "0.9"]
        assert len(series["mean"]) == len(series["timestamps"]) == 3


def test_pretrain(document: Any, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(
        "model: {d_model: 8, d_kv: 4, d_ff: 8, num_layers: 1, num_decoder_layers: 1, num_heads: 2, n_tokens: 32}\n"
        "context: 16\nhorizon: 4\nbank_kernels: 0\nmixture: {kernel_share: 0.0, mixup_share: 0.0}\n"
        "max_steps: 2\nbatch_size: 2\nwarmup_steps: 0\nlog_steps: 1\n"
    )
    result = document("pretrain", tmp_path / "run.yaml", "--out", tmp_path / "model", "--device", "cpu")
    assert result["schema"] == "rankscope/pretrain@1"
    check(result, {"schema": str, "folder": str, "steps": int, "loss": NUMBER, "seconds": NUMBER, "parameters": int})
    check(document("spectrum", tmp_path / "model"), SPECTRUM)
