"""What is found by structure, against written records and against what the modules do."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.errors import CheckpointError, FamilyError
from rankscope.families import Site
from rankscope.families.generic import guess_family
from rankscope.families.structure import find_structure
from rankscope.measure.hooks import LayerKey
from rankscope.measure.sweep import mean_head_rank, measure_point

Opened = Callable[..., Checkpoint]
LayerInputs = Callable[[Checkpoint, Tensor], dict[LayerKey, Tensor]]
WRITTEN = ["timesfm", "patchtst", "informer", "autoformer", "bert", "bert-head", "roberta-head", "vit", "vit-head"]
SQUARE = {"timesfm": "intermediate_size", "patchtst": "ffn_dim", "informer": "encoder_ffn_dim", "t5": "d_ff"}
UNKNOWN = ["llama", "gpt2", "gpt-neox", "bloom", "phi3", "falcon", "bart", "clip-vision"]


def guessed(checkpoint: Checkpoint) -> tuple[Site, ...]:
    shapes = {name: info.shape for name, info in checkpoint.index.items()}
    return find_structure(checkpoint.config, shapes).sites


def in_order(sites: tuple[Site, ...]) -> list[Site]:
    """Sites by name: where the embedding of the decoder stands is a matter of taste."""
    return sorted(sites, key=lambda site: site.name)


@pytest.mark.parametrize("kind", [*WRITTEN, "t5", "t5-gated"])
def test_guesses_are_what_the_written_family_says(kind: str, native_checkpoint: Opened) -> None:
    checkpoint = native_checkpoint(kind)
    assert in_order(guessed(checkpoint)) == in_order(checkpoint.sites("all"))


@pytest.mark.parametrize(
    ("kind", "width"), [*SQUARE.items(), ("bert", "intermediate_size"), ("vit", "intermediate_size")]
)
def test_mlps_as_wide_as_the_model_are_told_apart_by_name(kind: str, width: str, native_checkpoint: Opened) -> None:
    checkpoint = native_checkpoint(kind, **{width: 16})
    assert in_order(guessed(checkpoint)) == in_order(checkpoint.sites("all"))


@pytest.mark.parametrize("model", ["bundled", "bundled-bolt"])
def test_guesses_on_bundled_models(model: str) -> None:
    checkpoint = open_checkpoint(model)
    assert guessed(checkpoint) == tuple(site for site in checkpoint.sites("all") if site.kind != "head")


def test_a_decoder_that_no_name_betrays_counts_as_an_encoder(native_checkpoint: Opened) -> None:
    checkpoint = native_checkpoint("timesfm-2.5", intermediate_size=16)
    assert guessed(checkpoint) == tuple(replace(site, stack="encoder") for site in checkpoint.sites("all"))


def test_llama_by_hand(native_checkpoint: Opened) -> None:
    checkpoint = native_checkpoint("llama")
    sites = checkpoint.sites("all")
    assert len(sites) == 1 + 2 * 7
    assert sites[0] == Site("model.embed_tokens.weight", "encoder", None, "embedding")
    layer = "model.layers.1"
    assert sites[8:] == (
        Site(f"{layer}.self_attn.q_proj.weight", "decoder", 1, "self.q", 4, 4, 0),
        Site(f"{layer}.self_attn.k_proj.weight", "decoder", 1, "self.k", 2, 4, 0),
        Site(f"{layer}.self_attn.v_proj.weight", "decoder", 1, "self.v", 2, 4, 0),
        Site(f"{layer}.self_attn.o_proj.weight", "decoder", 1, "self.o", 4, 4, 1),
        Site(f"{layer}.mlp.gate_proj.weight", "decoder", 1, "mlp_gate"),
        Site(f"{layer}.mlp.up_proj.weight", "decoder", 1, "mlp_in"),
        Site(f"{layer}.mlp.down_proj.weight", "decoder", 1, "mlp_out"),
    )


def test_gpt2_is_stored_transposed_and_fused(native_checkpoint: Opened) -> None:
    checkpoint = native_checkpoint("gpt2")
    stored = checkpoint.tensor("transformer.h.0.attn.c_attn.weight")  # (in, 3·out)
    for position, letter in enumerate("qkv"):
        site = next(site for site in checkpoint.sites(letter) if site.layer == 0)
        assert torch.equal(checkpoint.matrix(site), stored[:, 16 * position : 16 * (position + 1)].T)
        assert checkpoint.shape(site) == (16, 16)
        assert checkpoint.stored(site) == 256
    mlp = checkpoint.sites("mlp")
    assert [checkpoint.shape(site) for site in mlp[:2]] == [(64, 16), (16, 64)]


def without(checkpoint: Checkpoint, letter: str) -> Any:
    """The module with the rows of one guessed projection set to zero, in every layer."""
    module = checkpoint.module()
    weights = dict(module.named_parameters())
    with torch.no_grad():
        for site in checkpoint.sites(letter):
            name = next(name for name in weights if site.name.endswith(name))
            weight = weights[name]
            rows = weight.T if site.transposed else weight
            split = rows.unflatten(0, (site.part.groups, -1)) if site.part else rows[None]
            part = site.part or replace_part(rows)
            split[:, part.start : part.start + part.width] = 0
    return module


def replace_part(rows: Tensor) -> Any:
    from rankscope.families.sites import Part

    return Part(0, rows.shape[0])


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gpt-neox", "bloom", "phi3", "falcon"])
def test_guessed_projections_do_what_their_letters_say(kind: str, native_checkpoint: Opened) -> None:
    """Without queries all keys score alike, as without keys; without values nothing else of a prompt is seen."""
    checkpoint = native_checkpoint(kind)
    ids = torch.tensor([[3, 9, 27, 5, 15], [8, 9, 27, 5, 15]])

    def answers(module: Any) -> Tensor:
        with torch.no_grad():
            return module(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state

    full, no_q, no_k, no_v = (answers(m) for m in (checkpoint.module(), *(without(checkpoint, x) for x in "qkv")))
    assert not torch.allclose(full, no_q, atol=1e-6)
    if kind != "bloom":  # its slopes are added to the scores; they stay, and are alike in both
        torch.testing.assert_close(no_q, no_k)
    assert not torch.allclose(full[0, -1], full[1, -1], atol=1e-7)
    torch.testing.assert_close(no_v[0, -1], no_v[1, -1])


@pytest.mark.parametrize("kind", UNKNOWN)
def test_unknown_models_are_built_fed_and_looked_into(
    kind: str, native_checkpoint: Opened, layer_inputs: LayerInputs
) -> None:
    checkpoint = native_checkpoint(kind)
    module: Any = checkpoint.module()
    x = torch.randint(3, 40, (2, 9), generator=torch.Generator().manual_seed(0))
    if checkpoint.family.modality == "image":
        x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    embedded = checkpoint.family.embed(module, x)
    layers = {(site.stack, site.layer) for site in checkpoint.sites("all") if site.layer is not None}
    assert set(layer_inputs(checkpoint, x)) == layers
    if checkpoint.family.modality == "text":
        assert torch.equal(embedded, module.get_input_embeddings()(x.flatten()).detach())
    else:
        assert embedded.shape == (2 * 16, 16)


def test_a_text_without_padding_token_counts_whole_and_is_cut_to_the_positions(native_checkpoint: Opened) -> None:
    checkpoint = native_checkpoint("gpt2")
    module: Any = checkpoint.module()
    module.config.pad_token_id = None
    x = torch.arange(36)[None] % 4
    assert len(checkpoint.family.embed(module, x)) == 36
    most = checkpoint.family.context(checkpoint.config)
    assert most == module.config.n_positions
    long = torch.zeros(1, most + 3, dtype=torch.long)
    assert checkpoint.family.model_inputs(module, long)["input_ids"].shape == (1, most)


def test_what_is_guessed_is_said(native_checkpoint: Opened) -> None:
    words = native_checkpoint("gpt2").guesses
    assert "2 decoder layers = transformer.h.N" in words
    assert "self.k = N.attn.c_attn (part 2 of 3) (transposed)" in words
    assert "embedding = transformer.wte" in words
    assert "heads = 2" in words
    assert native_checkpoint("bert").guesses == ()


def test_unknown_structure_says_what_was_looked_for_and_found(native: Callable[..., Path]) -> None:
    with pytest.raises(FamilyError) as caught:
        open_checkpoint(native("resnet"))
    line = str(caught.value)
    assert "\n" not in line
    assert "'resnet'" in line
    assert "q_proj" in line
    assert "convolution.weight" in line


def test_without_a_number_of_heads_no_head_is_measured(native: Callable[..., Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(native("llama"), tmp_path / "headless"))
    config = json.loads((folder / "config.json").read_text())
    del config["num_attention_heads"]
    (folder / "config.json").write_text(json.dumps(config))
    checkpoint = open_checkpoint(folder)
    assert all(site.head_widths == () for site in checkpoint.sites("all"))
    assert any("heads = unknown" in words for words in checkpoint.guesses)


def test_without_a_number_of_heads_a_point_of_a_sweep_has_whole_ranks(
    native: Callable[..., Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(native("bart"), tmp_path / "headless"))
    config = json.loads((folder / "config.json").read_text())
    for stack in ("encoder", "decoder"):
        del config[f"{stack}_attention_heads"]
    (folder / "config.json").write_text(json.dumps(config))
    ranks = measure_point(folder, (0.1,))
    assert ranks.mean_ranks["all"]["0.1"] > 0
    assert math.isnan(mean_head_rank(ranks, "0.1"))


def test_two_encoders_are_refused(tmp_path: Path) -> None:
    names = [f"{tower}.layers.0.self_attn.{letter}_proj.weight" for tower in ("text", "vision") for letter in "qkv"]
    save_file({name: torch.ones(8, 8) for name in names}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "two", "num_attention_heads": 2}))
    with pytest.raises(FamilyError, match=r"text\.layers\.N and vision\.layers\.N"):
        open_checkpoint(tmp_path)


def test_a_model_that_transformers_does_not_know_is_still_measured(tmp_path: Path) -> None:
    tensors = {f"blocks.{i}.attn.qkv.weight": torch.randn(24, 8) for i in range(2)}
    tensors |= {f"blocks.{i}.attn.proj.weight": torch.randn(8, 8) for i in range(2)}
    save_file({**tensors, "patch_embed.proj.weight": torch.randn(8, 3, 4, 4)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mine", "num_heads": 2}))
    checkpoint = open_checkpoint(tmp_path)
    assert [site.role for site in checkpoint.sites("all")] == [
        "patch_in",
        *["self.q", "self.k", "self.v", "self.o"] * 2,
    ]
    assert checkpoint.shape(checkpoint.sites("embedding")[0]) == (8, 48)
    with pytest.raises(FamilyError, match="cannot build this model"):
        checkpoint.module()


def test_a_config_that_asks_for_more_than_is_stored_is_refused(native_checkpoint: Opened, tmp_path: Path) -> None:
    source = native_checkpoint("llama")
    folder = shutil.copytree(source.folder, tmp_path / "large")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_key_value_heads": 2_000_000}))
    with pytest.raises(CheckpointError, match=r"describes a model of .* numbers, and .* bytes are stored"):
        open_checkpoint(folder).module()


def test_a_checkpoint_that_lacks_weights_is_named_as_such(native_checkpoint: Opened) -> None:
    folder = native_checkpoint("bart").folder
    tensors = load_file(folder / "model.safetensors")
    name = next(one for one in tensors if one.endswith("decoder.layernorm_embedding.weight"))
    del tensors[name]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    checkpoint = open_checkpoint(folder)
    with pytest.raises(CheckpointError, match=r"has no decoder\.layernorm_embedding\.weight, which BartModel needs"):
        checkpoint.module()


@pytest.mark.parametrize("kind", ["timesfm", "timesfm-2.5"])
def test_no_weight_of_a_known_family_is_left_to_chance(kind: str, native_checkpoint: Opened, tmp_path: Path) -> None:
    folder = shutil.copytree(native_checkpoint(kind).folder, tmp_path / kind)
    tensors = load_file(folder / "model.safetensors")
    name = next(one for one in tensors if one.endswith("bias"))
    del tensors[name]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=f"has no .*{name.rpartition('.')[2]}, which TimesFm.* needs"):
        open_checkpoint(folder).module()


def test_guessing_needs_no_module(native_checkpoint: Opened) -> None:
    checkpoint = native_checkpoint("bart")
    family, _ = guess_family(checkpoint.config, {name: info.shape for name, info in checkpoint.index.items()})
    roles = {site.role for site in family.sites(checkpoint.config) if site.stack == "decoder"}
    assert {"self.q", "cross.q", "cross.o", "mlp_in", "mlp_out"} <= roles
    heads = {site.stack: site.heads for site in family.sites(checkpoint.config) if site.kind == "attention"}
    assert heads == {"encoder": 2, "decoder": 4}


def test_the_fused_matrix_of_a_state_space_model_is_no_attention() -> None:
    shapes: dict[str, tuple[int, ...]] = {"backbone.embeddings.weight": (100, 768)}
    for layer in range(2):
        mixer = f"backbone.layers.{layer}.mixer"
        shapes |= {f"{mixer}.in_proj.weight": (3072, 768), f"{mixer}.out_proj.weight": (768, 1536)}
        shapes |= {f"{mixer}.x_proj.weight": (80, 1536), f"{mixer}.dt_proj.weight": (1536, 48)}
    for config in ({"model_type": "mamba"}, {"model_type": "mamba", "num_heads": 24}):
        with pytest.raises(FamilyError, match="no attention was found by structure"):
            find_structure(config, shapes)


def test_queries_and_shared_keys_are_cut_where_the_config_says_how_many_there_are() -> None:
    """ChatGLM3: 32 query heads and 2 of keys and values, all 128 wide, in one matrix."""
    layer, shapes = "transformer.encoder.layers.{}.self_attention", {"transformer.embedding.weight": (65024, 4096)}
    for number in range(2):
        shapes[f"{layer.format(number)}.query_key_value.weight"] = (4608, 4096)
        shapes[f"{layer.format(number)}.dense.weight"] = (4096, 4096)
    config = {"model_type": "chatglm", "num_attention_heads": 32, "kv_channels": 128, "num_layers": 2}
    found = find_structure({**config, "multi_query_group_num": 2}, shapes).sites
    rows = {site.role: site.part.width * site.part.groups for site in found if site.part and site.layer == 0}
    assert rows == {"self.q": 4096, "self.k": 256, "self.v": 256}
    with pytest.raises(FamilyError, match="no attention was found by structure"):
        find_structure(config, shapes)


@pytest.mark.parametrize("heads", [{}, {"num_heads": 4}])
def test_a_fused_in_proj_with_its_output_is_an_attention(heads: dict[str, int]) -> None:
    shapes = {"layers.0.attn.in_proj.weight": (48, 16), "layers.0.attn.out_proj.weight": (16, 16)}
    assert [site.role for site in find_structure(heads, shapes).sites] == [f"self.{letter}" for letter in "qkvo"]
