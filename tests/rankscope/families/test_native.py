"""The families of transformers against the modules themselves."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.errors import CheckpointError, DataError
from rankscope.measure.flow import measure_flow
from rankscope.measure.hooks import LayerKey
from rankscope.series.images import images
from rankscope.series.signals import corpus

SERIES = ["timesfm", "timesfm-2.5", "patchtst", "patchtsmixer", "patchtsmixer-attention", "informer", "autoformer"]
TEXT = ["bert", "bert-head", "roberta-head"]
IMAGES = ["vit", "vit-head"]
KINDS = [*SERIES, *TEXT, *IMAGES]
Opened = Callable[..., Checkpoint]
LayerInputs = Callable[[Checkpoint, Tensor], dict[LayerKey, Tensor]]


def read_by(checkpoint: Checkpoint) -> Tensor:
    """A few inputs of the kind that a family reads; series as long as context and horizon together."""
    if checkpoint.family.modality == "text":
        return torch.randint(3, 40, (4, 20), generator=torch.Generator().manual_seed(0))
    if checkpoint.family.modality == "image":
        return images(4, 32, 0)[0]
    lagged = "lags_sequence" in checkpoint.config
    return corpus("sine", 4, 26 if lagged else 64) + torch.arange(4.0)[:, None]


@pytest.mark.parametrize("kind", KINDS)
def test_every_matrix_of_the_layers_is_a_site(kind: str, native_checkpoint: Opened) -> None:
    checkpoint = native_checkpoint(kind)
    stored = {
        name
        for name, info in checkpoint.index.items()
        if re.search(r"(layers?|mixers)\.\d+\.", name) and len(info.shape) == 2 and name.endswith("weight")
    }
    assert {site.name for site in checkpoint.sites("all") if site.layer is not None} == stored
    assert checkpoint.family.name == {"roberta-head": "bert"}.get(kind, re.sub("-(head|attention)", "", kind))


@pytest.mark.parametrize("kind", KINDS)
def test_heads_split_their_axis(kind: str, native_checkpoint: Opened) -> None:
    checkpoint = native_checkpoint(kind)
    for site in checkpoint.sites("all"):
        if site.kind == "attention":
            assert sum(site.head_widths) == checkpoint.shape(site)[site.head_axis or 0]


@pytest.mark.parametrize(("base", "head"), [("bert", "bert-head"), ("vit", "vit-head")])
def test_the_name_before_the_name_is_found(base: str, head: str, native_checkpoint: Opened) -> None:
    bare, inside = native_checkpoint(base), native_checkpoint(head)
    assert bare.prefix == ""
    assert inside.prefix == f"{base}."
    assert [f"{base}.{site.name}" for site in bare.sites("all")] == [site.name for site in inside.sites("all")]
    assert inside.tensor(inside.sites("q")[0].name).shape == (16, 16)


def timesfm_patches(module: Any, series: Tensor) -> Tensor:
    """Patches scaled by the first one, and no padding."""
    patches = series.unflatten(1, (-1, 8))
    first = patches[:, :1]
    scaled = (patches - first.mean(2, keepdim=True)) / first.var(2, correction=0, keepdim=True).sqrt()
    return module.decoder.input_ff_layer(torch.cat([scaled, torch.zeros_like(scaled)], -1)).flatten(0, 1)


def timesfm2_5_patches(module: Any, series: Tensor) -> Tensor:
    """Patches of the whole scaled series, each scaled by all that was seen until its end."""
    whole = (series - series.mean(1, keepdim=True)) / series.std(1, keepdim=True)
    patches = []
    for end in range(8, 65, 8):
        seen = whole[:, :end]
        patches.append((seen[:, -8:] - seen.mean(1, keepdim=True)) / seen.std(1, correction=0, keepdim=True))
    x = torch.stack(patches, 1)
    return module.model.input_ff_layer(torch.cat([x, torch.zeros_like(x)], -1)).flatten(0, 1)


def linear_patches(weight: str, bias: str) -> Callable[[Any, Tensor], Tensor]:
    def embedded(module: Any, series: Tensor) -> Tensor:
        spread = (series.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
        patches = ((series - series.mean(1, keepdim=True)) / spread).unflatten(1, (-1, 8))
        return (patches @ module.get_parameter(weight).T + module.get_parameter(bias)).flatten(0, 1)

    return embedded


def vit_patches(module: Any, pixels: Tensor) -> Tensor:
    """Patches cut out one by one, each times the flattened kernel."""
    layer = module.embeddings.patch_embeddings.projection
    rows = []
    for image in pixels * 2 - 1:
        for top in range(0, 32, 8):
            for left in range(0, 32, 8):
                rows.append(layer.weight.flatten(1) @ image[:, top : top + 8, left : left + 8].flatten() + layer.bias)
    return torch.stack(rows)


REFERENCES = {
    "timesfm": timesfm_patches,
    "timesfm-2.5": timesfm2_5_patches,
    "patchtst": linear_patches("encoder.embedder.input_embedding.weight", "encoder.embedder.input_embedding.bias"),
    "patchtsmixer": linear_patches("encoder.patcher.weight", "encoder.patcher.bias"),
    "vit": vit_patches,
    "bert": lambda module, ids: module.embeddings.word_embeddings.weight[ids.flatten()],
}


@pytest.mark.parametrize("kind", REFERENCES)
def test_embedding_follows_its_formula(kind: str, native_checkpoint: Opened) -> None:
    checkpoint = native_checkpoint(kind)
    module, x = checkpoint.module(), read_by(checkpoint)
    with torch.no_grad():
        torch.testing.assert_close(
            checkpoint.family.embed(module, x), REFERENCES[kind](module, x), atol=1e-4, rtol=1e-4
        )


@pytest.mark.parametrize("kind", ["informer", "autoformer"])
def test_embedded_observations_enter_the_encoder(
    kind: str, native_checkpoint: Opened, layer_inputs: LayerInputs
) -> None:
    checkpoint = native_checkpoint(kind)
    module: Any = checkpoint.module()
    x = read_by(checkpoint)
    inputs = layer_inputs(checkpoint, x)
    embedded = checkpoint.family.embed(module, x).unflatten(0, (4, 16))
    with torch.no_grad():
        positions = module.encoder.embed_positions(embedded.shape[:2])
        entering = module.encoder.layernorm_embedding(embedded + positions)
    torch.testing.assert_close(inputs["encoder", 0], entering.flatten(0, 1))


@pytest.mark.parametrize("kind", ["timesfm", "timesfm-2.5", "patchtst", "patchtsmixer"])
def test_padding_and_gaps(kind: str, native_checkpoint: Opened) -> None:
    checkpoint = native_checkpoint(kind)
    module, x = checkpoint.module(), read_by(checkpoint)
    x[0, :43] = float("nan")  # 21 values are left: 3 patches of 8
    x[1, 20] = float("nan")
    embedded = checkpoint.family.embed(module, x)
    assert embedded.shape == (3 + 3 * 8, 16)
    assert torch.isfinite(embedded).all()
    alone = checkpoint.family.embed(module, x[2:])
    torch.testing.assert_close(embedded[-16:], alone)
    with pytest.raises(DataError, match="no observation"):
        checkpoint.family.embed(module, torch.full((2, 64), float("nan")))


@pytest.mark.parametrize("kind", [*TEXT, *IMAGES, "informer"])
def test_layer_inputs_are_the_hidden_states_of_transformers(
    kind: str, native_checkpoint: Opened, layer_inputs: LayerInputs
) -> None:
    checkpoint = native_checkpoint(kind)
    module, x = checkpoint.module(), read_by(checkpoint)
    inputs = layer_inputs(checkpoint, x)
    with torch.no_grad():
        answer = module(**checkpoint.family.model_inputs(module, x), output_hidden_states=True)
    states = answer.encoder_hidden_states if kind == "informer" else answer.hidden_states
    for layer in range(1 if kind == "informer" else 2):  # between Informer's layers stands a convolution
        torch.testing.assert_close(inputs["encoder", layer], states[layer].flatten(0, 1))


@pytest.mark.parametrize("kind", SERIES)
def test_flow_looks_into_every_layer(kind: str, native_checkpoint: Opened) -> None:
    checkpoint = native_checkpoint(kind)
    report = measure_flow(checkpoint, n=3, length=64)
    layers = {(site.stack, site.layer) for site in checkpoint.sites("all") if site.layer is not None}
    assert {(row.stack, row.layer) for row in report.layers} == layers
    assert all(row.d_model == 16 for row in report.layers)
    with_attention = any(site.kind == "attention" for site in checkpoint.sites("all"))
    assert all(bool(row.weight_eps_ranks) == with_attention for row in report.layers)


def test_timesfm_2_5_runs_its_layers_once(native_checkpoint: Opened) -> None:
    checkpoint = native_checkpoint("timesfm-2.5")
    assert measure_flow(checkpoint, n=3, length=64).layers[0].tokens == 3 * 8


@torch.no_grad()
@pytest.mark.parametrize("kind", ["timesfm", "timesfm-2.5"])
def test_timesfm_reads_no_more_patches_than_there_are_and_forecasts_the_same(
    kind: str, native_checkpoint: Opened
) -> None:
    checkpoint = native_checkpoint(kind)
    module, family = checkpoint.module(), checkpoint.family
    series = torch.randn(2, 24, generator=torch.Generator().manual_seed(0))
    series[1, :11] = torch.nan
    inputs = family.model_inputs(module, series)
    padded = {name: value for name, value in inputs.items() if name != "forecast_context_len"}
    seen = []
    family.blocks(module)["decoder"][0].register_forward_pre_hook(
        lambda _, args, kwargs: seen.append((args[0] if args else kwargs["hidden_states"]).shape[1]), with_kwargs=True
    )
    short, long = (module(**given).mean_predictions for given in (inputs, padded))
    assert seen == [3, 8]
    torch.testing.assert_close(short, long)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("timesfm", {"num_hidden_layers": 1}),
        ("timesfm-2.5", {"num_key_value_heads": 4}),
        ("patchtst", {"ffn_dim": 20}),
        ("patchtsmixer", {"expansion_factor": 2}),
        ("informer", {"decoder_layers": 2}),
        ("bert-head", {"num_hidden_layers": 1}),
        ("vit", {"patch_size": 4}),
    ],
)
def test_config_and_weights_that_disagree(
    kind: str, change: dict[str, int], native: Callable[..., Path], tmp_path: Path
) -> None:
    shutil.copytree(native(kind), tmp_path / "changed")
    file = tmp_path / "changed/config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(CheckpointError, match=r"config\.json and weights disagree"):
        open_checkpoint(tmp_path / "changed")


def test_weights_are_never_drawn_at_random(native: Callable[..., Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(native("bert"), tmp_path / "torn"))
    tensors = load_file(folder / "model.safetensors")
    del tensors["encoder.layer.1.output.LayerNorm.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"encoder\.layer\.1\.output\.LayerNorm\.weight"):
        open_checkpoint(folder).module()


def test_images_are_checked_and_scaled(native_checkpoint: Opened) -> None:
    checkpoint = native_checkpoint("vit")
    module = checkpoint.module()
    with pytest.raises(DataError, match="from 0 to 1"):
        checkpoint.family.embed(module, torch.full((1, 3, 32, 32), 255.0))
    with pytest.raises(DataError, match="axes"):
        checkpoint.family.embed(module, torch.zeros(2, 32))
    assert checkpoint.family.embed(module, torch.rand(2, 3, 48, 48)).shape == (2 * 16, 16)


def test_a_part_answers_and_the_rest_does_not_run() -> None:
    from rankscope.families.loading import output_of

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            y = self.first(x)
            y += 1
            raise AssertionError("the rest ran")

    module, x = Two(), torch.ones(1, 2)
    torch.testing.assert_close(output_of(module, module.first, {"x": x}), module.first(x).detach())
    assert not module.first._forward_hooks


def test_nothing_is_masked_of_what_a_pretrained_patchtst_embeds(native_checkpoint: Opened, tmp_path: Path) -> None:
    folder = shutil.copytree(native_checkpoint("patchtst").folder, tmp_path / "patchtst")
    config = json.loads((folder / "config.json").read_text())
    masked = {"do_mask_input": True, "mask_type": "random", "random_mask_ratio": 0.5}
    (folder / "config.json").write_text(json.dumps({**config, **masked}))
    checkpoint = open_checkpoint(folder)
    module, series = checkpoint.module(), corpus("mixed", 6, 64, 0)
    first, again = (checkpoint.family.embed(module, series) for _ in range(2))
    assert torch.equal(first, again)
    assert not (first == checkpoint.family.embed(module, torch.zeros(1, 64))[0]).all(dim=1).any()


def test_keys_that_an_informer_draws_follow_the_seed(native_checkpoint: Opened) -> None:
    checkpoint = native_checkpoint("informer", attention_type="prob", sampling_factor=1, context_length=48)
    first, again, other = (measure_flow(checkpoint, "mixed", n=3, length=48, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize(("kind", "most"), [("patchtst", 64), ("informer", 26), ("timesfm", 64)])
def test_the_flow_says_how_much_a_model_reads(kind: str, most: int, native_checkpoint: Opened) -> None:
    checkpoint = native_checkpoint(kind)
    assert [measure_flow(checkpoint, "noise", n=2, length=length).length for length in (8 * most, 24)] == [most, 24]
