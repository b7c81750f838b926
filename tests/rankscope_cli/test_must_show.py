"""End to end on the command line: prescribed ranks, published scores, identical forecasts."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rankscope.checkpoints import open_checkpoint
from rankscope.engine.device import computing_dtype
from rankscope.families import family_of

EPS = (0.3, 0.1, 0.05, 0.01)
BFLOAT16_UNIT = 2.0**-8
"""Largest relative error of rounding one number to bfloat16: half a unit in the last of 8 significant bits."""


def prescribed_checkpoint(folder: Path, write: Any, config: dict[str, Any], tensors: Any, dtype: Any) -> dict[str, Any]:
    """Write a checkpoint whose Q, K, V and O are UΣVᵀ, and return every Σ by name."""
    rng = np.random.default_rng(0)
    spectra = {}
    for site in family_of(config).sites(config):
        if site.kind == "attention":
            rows, columns = tensors[site.name].shape
            k = min(rows, columns)
            ranks = np.sort(rng.choice(np.arange(1, k + 1), size=len(EPS), replace=False))
            # between two ε, a quarter away from both
            tops = [1.0, *(eps / 1.25 for eps in EPS)]
            floors = [1.25 * eps for eps in (*EPS, EPS[-1] / 10)]
            counts = np.diff([0, *ranks, k])
            parts = [np.linspace(*part) for part in zip(tops, floors, counts, strict=True)]
            sigma = np.concatenate(parts)
            sigma[0] = 1.0
            u = np.linalg.qr(rng.standard_normal((rows, k)))[0]
            v = np.linalg.qr(rng.standard_normal((columns, k)))[0]
            scale = 10.0 ** rng.uniform(-3, 3)
            tensors[site.name] = torch.from_numpy((u * sigma * scale) @ v.T)
            spectra[site.name] = sigma
    write(folder, config, tensors, dtype=dtype)
    return spectra


def counted(sigma: np.ndarray, eps: float) -> int:
    rank = 0
    for value in sigma:
        rank += value > eps * sigma[0]
    return rank


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_prescribed_singular_values_give_their_ranks(
    document: Any,
    tmp_path: Path,
    write_checkpoint: Any,
    tiny_config: Any,
    random_tensors: Any,
    dtype: torch.dtype,
) -> None:
    """In fp32 exactly; in bf16 within the ranks that a perturbation of ‖E‖_F ≤ 2⁻⁸‖W‖_F can change (Weyl)."""
    config = tiny_config("chronos-t5", d_model=48, d_kv=12, num_heads=4)
    spectra = prescribed_checkpoint(tmp_path / "model", write_checkpoint, config, random_tensors(config), dtype)
    result = document("spectrum", tmp_path / "model", "--eps", ",".join(map(str, EPS)))
    assert {site["name"] for site in result["sites"]} == set(spectra)
    exact = 0
    for site in result["sites"]:
        sigma = spectra[site["name"]]
        shift = BFLOAT16_UNIT * float(np.sqrt((sigma**2).sum())) if dtype == torch.bfloat16 else 0.0
        for eps in EPS:
            found = site["eps_ranks"][repr(eps)]
            least = sum(sigma - shift > eps * (1 + shift))
            most = sum(sigma + shift > eps * (1 - shift))
            assert least <= found <= most
            exact += found == counted(sigma, eps)
    total = len(spectra) * len(EPS)
    assert exact == total if dtype == torch.float32 else exact > total // 2


def test_seasonal_naive_scores_equal_the_published_ones(document: Any, shared_folder: Path) -> None:
    folder = shared_folder / "data" / "benchmark"
    result = document("eval", "seasonal-naive", "--suite", folder / "backtest.yaml", "--data", folder)
    with (folder / "reference.csv").open() as stream:
        published = {row["dataset"]: row for row in csv.DictReader(stream) if row["model"] == "seasonal-naive"}
    assert {row["dataset"] for row in result["rows"]} == set(published)
    for row in result["rows"]:
        reference = published[row["dataset"]]
        assert row["benchmark"] == reference["benchmark"]
        for metric in ("MASE", "WQL"):
            assert row[metric] == pytest.approx(float(reference[metric]), rel=1e-4)


@pytest.fixture(
    params=[
        "forecaster_folder",
        "bolt_folder",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("bundled", "bundled-bolt")),
    ]
)
def model(request: pytest.FixtureRequest) -> str:
    if request.param.endswith("_folder"):
        return str(request.getfixturevalue(request.param))
    return request.param


def test_a_compressed_model_forecasts_the_same_in_plain_chronos_code(
    cli: Any, document: Any, model: str, tmp_path: Path, monthly_csv: Path
) -> None:
    from chronos import BaseChronosPipeline

    from rankscope_eval import evaluate
    from rankscope_eval.forecasters import Forecasting, pipeline_forecaster

    small = tmp_path / "small"
    # Random matrices, and those of a short run from a broad start, have no small singular values: a ratio thins them.
    how = ("--eps", "0.05") if model == "bundled" else ("--attention-ratio", "0.6")
    assert cli("compress", model, *how, "--out", small).exit_code == 0
    assert json.loads((small / "config.json").read_text())["rankscope"]["sites"]
    few = ("--tasks", "nile,generated_ar1", "--num-samples", "5", "--seed", "3", "--runtime", "stock")
    rows = document("eval", small, "--baseline", model, *few)["rows"]
    ours = {row["dataset"]: (row["MASE"], row["WQL"]) for row in rows if row["model"] == str(small)}
    dtype = computing_dtype("cpu", open_checkpoint(small).dtype)
    pipeline = BaseChronosPipeline.from_pretrained(str(small), dtype=dtype)
    plain = pipeline_forecaster("plain", pipeline, Forecasting(num_samples=5, seed=3))
    report = evaluate([plain], suite="embedded", tasks=["nile", "generated_ar1"])
    assert {row.dataset: (row.MASE, row.WQL) for row in report.rows if row.model == "plain"} == ours

    how = ("--num-samples", 5, "--seed", 3, "--quantiles", 0.5, "--runtime", "stock")
    shown = document("forecast", small, "--input", monthly_csv, "--horizon", 4, *how)
    columns = np.genfromtxt(monthly_csv, delimiter=",", skip_header=1, usecols=(1, 2), dtype=np.float32).T
    contexts = [torch.from_numpy(np.ascontiguousarray(column)) for column in columns]
    torch.manual_seed(3)
    if pipeline.forecast_type.name == "SAMPLES":
        samples = pipeline.predict(contexts, prediction_length=4, num_samples=5).numpy()
        medians = np.sort(samples, axis=1)[:, 2]
    else:
        medians = pipeline.predict_quantiles(contexts, prediction_length=4, quantile_levels=[0.5])[0][..., 0].numpy()
    found = [series["quantiles"]["0.5"] for series in shown["series"]]
    np.testing.assert_array_equal(np.asarray(found, dtype=np.float32), medians)
