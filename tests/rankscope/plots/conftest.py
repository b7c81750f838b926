import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from rankscope.families import Site
from rankscope.measure.embedding import EmbeddingReport, EmbeddingSpectrum, Projection
from rankscope.measure.flow import FlowReport, LayerFlow
from rankscope.measure.spectrum import ranks_by_eps
from rankscope.measure.sweep import EmbeddingRanks, PointRanks, SweepReport, SweepRow
from rankscope.numerics import angle_matrix

EPS = (0.1, 0.01)
WIDTH = 24


def decaying(rate: float) -> np.ndarray:
    return np.exp(-rate * np.arange(WIDTH))


def ranks(sigma: np.ndarray) -> dict[str, int]:
    return ranks_by_eps(torch.from_numpy(sigma), EPS)


def of_rows(tokens: int, sigma: np.ndarray) -> dict[str, Any]:
    return {
        "tokens": tokens,
        "d_model": WIDTH,
        "sigma": sigma,
        "eps_ranks": ranks(sigma),
        "effective_rank": 2.0,
    }


@pytest.fixture(autouse=True)
def without_pyplot(monkeypatch: pytest.MonkeyPatch) -> None:
    """No figure may need pyplot and its global state: importing it fails here."""
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)


@pytest.fixture
def flow_report() -> FlowReport:
    rows = []
    for stack in ("encoder", "decoder"):
        for layer in range(4):
            sigma = 7 * decaying(1 / (1 + layer))
            weights = {f"self.{c}": ranks(decaying(0.3 * (i + 1) / (1 + layer))) for i, c in enumerate("qkvo")}
            rows.append(LayerFlow(stack, layer, 0.1, weights, **of_rows(99, sigma)))
    return FlowReport("tiny", "constant", 1, 99, 0, EPS, tuple(rows))


@pytest.fixture
def spectrum_report() -> Any:
    """Two stacks of three layers with the fields that the figures read of a spectrum report."""
    sites = []
    for stack, scopes in (("encoder", ("self",)), ("decoder", ("self", "cross"))):
        for layer in range(3):
            for scope in scopes:
                for i, letter in enumerate("qkvo"):
                    sigma = 3 * decaying((0.2 + 0.1 * i) / (1 + layer))
                    name = f"{stack}.{layer}.{scope}.{letter}.weight"
                    site = Site(name, stack, layer, f"{scope}.{letter}", 4, 6, int(letter == "o"))  # type: ignore[arg-type]
                    shape = (WIDTH, WIDTH)
                    sites.append(SimpleNamespace(site=site, shape=shape, sigma=sigma, eps_ranks=ranks(sigma)))
    return SimpleNamespace(sites=tuple(sites), eps=EPS, is_trained=lambda row: True)


@pytest.fixture
def embedding_report() -> EmbeddingReport:
    rows = []
    for model, matrix in (("a/quantised", "corpus"), ("a/quantised", "vocabulary"), ("b/patched", "corpus")):
        x = np.random.default_rng(len(rows)).standard_normal((40, WIDTH)) * decaying(0.3)
        _, sigma, v = np.linalg.svd(x, full_matrices=False)
        shown = Projection(x @ v[:2].T, np.arange(40.0), "token id" if matrix == "vocabulary" else "patch mean")
        angles = angle_matrix(torch.from_numpy(x)).numpy()
        rows.append(EmbeddingSpectrum(model, "f", "quantisation", 1, matrix, 2.0, angles, shown, **of_rows(40, sigma)))
    return EmbeddingReport("sine", 1, 40, 0, EPS, tuple(rows))


def sweep_row(model: dict[str, int], rank: float, seed: int = 0, vocabulary: int = 0) -> SweepRow:
    """A finished point whose ranks grow as ε falls."""
    keys = [str(eps) for eps in EPS]
    mean = {key: rank * (i + 1) + seed for i, key in enumerate(keys)}
    heads = {key: [[int(mean[key]) // 2, int(mean[key]) // 2 + 1]] for key in keys}
    name = "-".join(str(value) for value in (*model.values(), vocabulary, seed))
    sigma = tuple(decaying(1.5 / model.get("patch_size", 4)).tolist())
    ranks = PointRanks(
        attention_parameters=int(1000 * rank),
        bytes=int(9000 * rank),
        mean_ranks={"all": mean, "encoder.self": {key: value + 1 for key, value in mean.items()}},
        layer_ranks={"encoder.self": {key: [int(value)] for key, value in mean.items()}},
        head_ranks={"encoder.self": heads},
        embeddings=(EmbeddingRanks("corpus", 9, sigma, dict.fromkeys(keys, 3)),),
    )
    scores: dict[str, float | None] = {
        "relative_WQL": 1 - rank / 100,
        "relative_MASE": 1 - rank / 90,
        "forecast_seconds": rank,
    }
    config = {"model": {"d_kv": 8, **model}, "embedding": {"rank": vocabulary}, "seed": seed}
    return SweepRow(name, dict(model), config, "done", loss=1.0, ranks=ranks, scores=scores)


@pytest.fixture
def sweep_report() -> Any:
    """``sweep_report("d_model", [16, 32], seeds=2)``: a sweep over one field of the model, or over the vocabulary."""

    def make(field: str, values: list[int], seeds: int = 1) -> SweepReport:
        rows = [
            sweep_row({} if field == "rank" else {field: value}, 3.0 + i, seed, value if field == "rank" else 0)
            for i, value in enumerate(values)
            for seed in range(seeds)
        ]
        return SweepReport("toy", "", "out", EPS, (*rows, SweepRow("lost", {}, {}, "failed", "it died")))

    return make


@pytest.fixture
def spectra_frame() -> pd.DataFrame:
    """Spectra that a run of two layers logged at three steps."""
    rows = [
        (step, f"encoder.{layer}.q", "encoder", layer, "self.q", index, value * (1 + step))
        for step in (0, 5, 50)
        for layer in (0, 1)
        for index, value in enumerate(decaying(0.1 * (1 + layer)))
    ]
    return pd.DataFrame(rows, columns=["step", "site", "stack", "layer", "role", "index", "sigma"])
