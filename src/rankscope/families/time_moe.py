"""Time-MoE: every value embedded by itself through a gated swish, then a causal decoder.

Published checkpoints have experts, which are not read: their embedding and attention are.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.errors import CheckpointError
from rankscope.families.layers import attention, equal_heads, matrix_shapes
from rankscope.families.record import Config, Family, Shapes, has_type, positive
from rankscope.families.series import check_series, standardised
from rankscope.families.sites import Site

_EMBEDDING = "model.embed_layer"
_PROJECTIONS = {letter: f"{letter}_proj" for letter in "qkvo"}
_GATED = (("gate_proj", "mlp_gate"), ("up_proj", "mlp_in"), ("down_proj", "mlp_out"))


def dense(config: Config) -> bool:
    """Return True if the MLPs have no experts."""
    return config.get("use_dense") is True


def sites(config: Config) -> tuple[Site, ...]:
    """Both halves of the embedding, then every layer; experts are left out."""
    return tuple(_sites(config))


def _sites(config: Config) -> Iterator[Site]:
    heads = equal_heads(config, positive(config, "hidden_size"))
    yield Site(f"{_EMBEDDING}.emb_layer.weight", "decoder", None, "patch_in")
    yield Site(f"{_EMBEDDING}.gate_layer.weight", "decoder", None, "patch_gate")
    for layer in range(positive(config, "num_hidden_layers")):
        block = f"model.layers.{layer}"
        yield from attention(f"{block}.self_attn", "decoder", layer, heads, names=_PROJECTIONS)
        if dense(config):
            for part, role in _GATED:
                yield Site(f"{block}.ffn_layer.{part}.weight", "decoder", layer, role)


def expected_shapes(config: Config) -> Shapes:
    """Every tensor of a dense model but its heads; of one with experts what is outside them."""
    d_model, inner = positive(config, "hidden_size"), positive(config, "intermediate_size")
    found = sites(config)
    shapes = {site.name: (d_model, 1) for site in found if site.layer is None} | matrix_shapes(found, d_model, inner)
    for layer in range(positive(config, "num_hidden_layers")):
        block = f"model.layers.{layer}"
        shapes |= {f"{block}.self_attn.{letter}_proj.bias": (d_model,) for letter in "qkv"}
        shapes |= {f"{block}.{norm}.weight": (d_model,) for norm in ("input_layernorm", "post_attention_layernorm")}
    return {**shapes, "model.norm.weight": (d_model,)}


def build(folder: Path, dtype: torch.dtype) -> nn.Module:
    """Load `rankscope.families.models.time_moe.TimeMoe`, or the embedding alone of a model with experts."""
    import json

    from rankscope.families.loading import load_into
    from rankscope.families.models.time_moe import EmbeddingOnly, TimeMoe

    config = json.loads((folder / "config.json").read_text())
    return load_into(TimeMoe(config) if dense(config) else EmbeddingOnly(config), folder, dtype)


def model_inputs(module: Any, series: Tensor) -> dict[str, Tensor]:
    """Standardised series (axes series, time); gaps count as the mean, 0."""
    check_series(series)
    weight = module.model.embed_layer.emb_layer.weight
    return {"values": standardised(series).nan_to_num(nan=0.0).to(weight)}


def embed(module: Any, series: Tensor) -> Float[Tensor, "tokens d_model"]:
    """Embed every observed value of a corpus (axes series, time), standardised per series."""
    check_series(series)
    values = standardised(series)
    layer = module.model.embed_layer
    with torch.no_grad():
        return layer(values[~values.isnan()].to(layer.emb_layer.weight))


def blocks(module: Any) -> dict[str, list[nn.Module]]:
    """Layers of the decoder.

    Raises:
        CheckpointError: the model has experts, of which the embedding alone is built.
    """
    layers = getattr(module.model, "layers", None)
    if layers is None:
        raise CheckpointError(
            "this Time-MoE has experts, and only its embedding is built: use `rankscope embed` or `rankscope spectrum`."
        )
    return {"decoder": list(layers)}


FAMILY = Family(
    name="time-moe",
    title="Time-MoE",
    strategy="continuous",
    matches=has_type("time_moe"),
    sites=sites,
    expected_shapes=expected_shapes,
    build=build,
    embed=embed,
    model_inputs=model_inputs,
    blocks=blocks,
    rotary=("self",),
    published_patch=1,
    hub_ids=("Maple728/TimeMoE-50M", "Maple728/TimeMoE-200M"),
    stand_in="bundled-time-moe",
    proxy=True,
)
