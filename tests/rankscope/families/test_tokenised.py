"""Time-MoE, WaveToken and TOTEM: what is embedded, and what the verbs see of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit
from torch import Tensor, nn

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.errors import CheckpointError, DataError
from rankscope.families.loading import write_module
from rankscope.families.models.time_moe import TimeMoe
from rankscope.families.models.totem import Totem
from rankscope.families.models.wavelets import SPECIAL, WaveletTokens
from rankscope.measure.flow import measure_flow
from rankscope.measure.spectrum import measure_spectrum
from rankscope.series.signals import corpus

TIME_MOE = {
    "model_type": "time_moe",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "horizon_lengths": [1, 4],
    "use_dense": True,
}
TOTEM = {"model_type": "totem", "hidden": 16, "residual_hidden": 8, "codes": 12, "d_model": 6}
TOKENS = WaveletTokens(n_tokens=64)
NAN = float("nan")


@pytest.fixture
def opened(tmp_path: Path, write_checkpoint: Callable[..., Path], tiny_config: Callable[..., Any]) -> Any:
    def make(kind: str, **changes: Any) -> Checkpoint:
        folder = tmp_path / kind
        torch.manual_seed(0)
        if kind == "wavetoken":
            part = {**asdict(TOKENS), "context_length": 32, **changes}
            return open_checkpoint(write_checkpoint(folder, tiny_config("t5", wavetoken=part)))
        folder.mkdir()
        config = {**(TIME_MOE if kind == "time_moe" else TOTEM), **changes}
        module: nn.Module = TimeMoe(config) if kind == "time_moe" else Totem(config)
        if kind == "totem":
            nn.init.normal_(module.quantiser.codebook.weight)
        write_module(module, config, folder)
        return open_checkpoint(folder)

    return make


def standard(row: Tensor) -> np.ndarray:
    seen = row[~row.isnan()].double().numpy()
    return (seen - seen.mean()) / seen.std()


def test_time_moe_embeds_every_observed_value_by_itself(opened: Any) -> None:
    checkpoint = opened("time_moe")
    series = torch.tensor([[NAN, 1.0, 4.0, NAN, 7.0], [2.0, 2.0, 0.0, 8.0, 1.0]])
    w, v = (
        checkpoint.tensor(f"model.embed_layer.{name}.weight").double().numpy()[:, 0]
        for name in ("gate_layer", "emb_layer")
    )
    values = np.concatenate([standard(row) for row in series])[:, None]
    want = w * values * expit(w * values) * v * values
    np.testing.assert_allclose(checkpoint.family.embed(checkpoint.module(), series), want, rtol=1e-4, atol=1e-6)


def test_wavetoken_looks_up_the_bin_of_every_coefficient(opened: Any) -> None:
    checkpoint = opened("wavetoken")
    series = corpus("noise", 3, 20, seed=1)
    series[1, :4] = NAN
    rows = checkpoint.family.embed(checkpoint.module(), series)
    table = checkpoint.tensor("shared.weight")
    centres = np.linspace(-TOKENS.limit, TOKENS.limit, TOKENS.n_tokens - SPECIAL)
    want = []
    for row in series:
        coefficients = np.concatenate(TOKENS.decompose(standard(row)))
        want += [table[SPECIAL + int(np.abs(centres - c).argmin())] for c in coefficients]
    torch.testing.assert_close(rows, torch.stack(want))
    assert len(rows) == 20 + 16 + 20


def test_wavetoken_reads_its_context_only(opened: Any) -> None:
    checkpoint = opened("wavetoken")
    module, series = checkpoint.module(), corpus("sine", 2, 50)
    torch.testing.assert_close(
        checkpoint.family.embed(module, series), checkpoint.family.embed(module, series[:, -32:])
    )


def test_totem_gives_the_nearest_code_of_every_four_values(opened: Any) -> None:
    checkpoint = opened("totem")
    module, series = checkpoint.module(), corpus("mixed", 3, 43, seed=1)
    rows = checkpoint.family.embed(module, series)
    values = torch.from_numpy(np.stack([standard(row)[3:] for row in series])).float()
    with torch.no_grad():
        latent = module.encode(values).flatten(0, 1)
    book = checkpoint.tensor("quantiser.codebook.weight")
    torch.testing.assert_close(rows, book[torch.cdist(latent, book).argmin(1)])
    assert rows.shape == (30, 6)
    assert torch.equal(checkpoint.family.vocabulary(module), book)


@pytest.mark.parametrize("kind", ["time_moe", "wavetoken"])
def test_the_layers_are_measured(kind: str, opened: Any) -> None:
    checkpoint = opened(kind)
    report = measure_flow(checkpoint, "mixed", n=6, length=24)
    assert len(report.layers) == (2 if kind == "time_moe" else 5)
    assert all(row.d_model == 16 for row in report.layers)
    spectrum = measure_spectrum(checkpoint, sites=("all",))
    assert {row.site.kind for row in spectrum.sites} == {"attention", "mlp", "embedding"}
    gated = [row.site.role for row in spectrum.sites if row.site.layer == 0 and row.site.kind == "mlp"]
    assert "mlp_in" in gated


def test_the_first_layer_reads_the_embedding(opened: Any) -> None:
    checkpoint = opened("time_moe")
    module, series = checkpoint.module(), corpus("noise", 2, 9)
    seen: list[Tensor] = []
    handle = checkpoint.family.blocks(module)["decoder"][0].register_forward_pre_hook(
        lambda _, args: seen.append(args[0])
    )
    with torch.no_grad():
        module(**checkpoint.family.model_inputs(module, series))
    handle.remove()
    torch.testing.assert_close(seen[0].flatten(0, 1), checkpoint.family.embed(module, series))


def test_of_a_model_with_experts_the_embedding_is_read(tmp_path: Path) -> None:
    """The published layout: experts in place of the MLPs, which are neither named nor built."""
    config = {**TIME_MOE, "use_dense": False, "num_experts": 8}
    torch.manual_seed(0)
    module = TimeMoe(config)
    for layer in module.model.layers:
        layer.ffn_layer = nn.ModuleDict({"experts": nn.ModuleList([nn.Linear(16, 24)])})
    (tmp_path / "moe").mkdir()
    write_module(module, config, tmp_path / "moe")
    checkpoint = open_checkpoint(tmp_path / "moe")
    assert {site.kind for site in checkpoint.sites("all")} == {"attention", "embedding"}
    assert checkpoint.family.embed(checkpoint.module(), corpus("sine", 2, 8)).shape == (16, 16)
    with pytest.raises(CheckpointError, match="has experts, and only its embedding is built"):
        measure_flow(checkpoint, "sine", n=2, length=8)


def test_totem_has_no_layers(opened: Any) -> None:
    checkpoint = opened("totem")
    assert [site.name for site in checkpoint.sites("all")] == ["quantiser.codebook.weight"]
    with pytest.raises(CheckpointError, match="without transformer layers"):
        measure_flow(checkpoint, "sine", n=2, length=8)


def test_short_series(opened: Any) -> None:
    short = corpus("sine", 2, 3)
    totem, wavetoken = opened("totem"), opened("wavetoken", level=2)
    with pytest.raises(DataError, match="too short for TOTEM: one code takes 4"):
        totem.family.embed(totem.module(), short)
    with pytest.raises(DataError, match="too short for a wavelet of level 2"):
        wavetoken.family.embed(wavetoken.module(), short)


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("time_moe", {"num_attention_heads": 3}, "num_attention_heads 3 does not divide the width 16"),
        ("time_moe", {"num_hidden_layers": 3}, "the config implies model.layers.2"),
        ("totem", {"compression": 6}, "compression is 6; it must be a power of two"),
        ("totem", {"codes": 13}, r"quantiser.codebook.weight: the config implies \[13, 6\]"),
        ("totem", {"codes": "x"}, "codes must be a whole number"),
    ],
)
def test_configs_that_do_not_fit(kind: str, changes: dict[str, Any], message: str, opened: Any) -> None:
    folder = opened(kind).folder
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(folder)


def test_a_vocabulary_of_another_size_is_named(opened: Any) -> None:
    with pytest.raises(CheckpointError, match=r"vocab_size 64 and wavetoken\.n_tokens 128 must agree"):
        opened("wavetoken", n_tokens=128)
