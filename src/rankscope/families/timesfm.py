"""TimesFM 1 and 2: a decoder over patches of 32 observations, embedded by a residual MLP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.families.layers import Heads, attention, layers_at, matrix_shapes
from rankscope.families.loading import output_of, whole_model
from rankscope.families.record import Config, Family, Shapes, has_type, positive
from rankscope.families.series import unpadded
from rankscope.families.sites import Site

NAMES = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}
EMBEDDING = {"input_layer": "patch_in", "output_layer": "patch_out", "residual_layer": "patch_residual"}
"""Layers of the residual MLP that embeds patches, and their roles."""


def heads(config: Config) -> Heads:
    """Heads of their own width: together they may be wider than the model."""
    count = positive(config, "num_attention_heads")
    return Heads(count, positive(config, "head_dim"), positive(config, "num_key_value_heads", count))


def embedding_sites(module: str) -> tuple[Site, ...]:
    """Sites of the residual MLP that embeds patches."""
    return tuple(Site(f"{module}.{name}.weight", "decoder", None, role) for name, role in EMBEDDING.items())


def embedding_shapes(module: str, size: int, hidden: int, d_model: int) -> Shapes:
    """Shapes of that MLP; a patch is embedded together with its mask of padding."""
    return {
        f"{module}.input_layer.weight": (hidden, 2 * size),
        f"{module}.output_layer.weight": (d_model, hidden),
        f"{module}.residual_layer.weight": (d_model, 2 * size),
    }


def sites(config: Config) -> tuple[Site, ...]:
    """Patch embedding, then the layers."""
    return (*embedding_sites("decoder.input_ff_layer"), *_layer_sites(config))


def _layer_sites(config: Config) -> Iterator[Site]:
    split = heads(config)
    for layer in range(positive(config, "num_hidden_layers")):
        block = f"decoder.layers.{layer}"
        yield from attention(f"{block}.self_attn", "decoder", layer, split, names=NAMES)
        # called a gate, but it gates nothing: a plain two-layer MLP
        yield Site(f"{block}.mlp.gate_proj.weight", "decoder", layer, "mlp_in")
        yield Site(f"{block}.mlp.down_proj.weight", "decoder", layer, "mlp_out")


def patch_size(config: Config) -> int:
    """Observations per patch."""
    return positive(config, "patch_length", 32)


def expected_shapes(config: Config) -> Shapes:
    """Every attention, MLP and embedding matrix."""
    d_model, d_ff = positive(config, "hidden_size"), positive(config, "intermediate_size")
    return {
        **embedding_shapes("decoder.input_ff_layer", patch_size(config), d_ff, d_model),
        **matrix_shapes(tuple(_layer_sites(config)), d_model, d_ff),
    }


def model_inputs(module: Any, series: Tensor) -> dict[str, Any]:
    """Series (axes series, time) as a list without missing values; the frequency is 0, high.

    The model pads all of them to its longest context, hundreds of patches, if it is not told a shorter one.
    """
    rows, patch = unpadded(series, int(module.config.context_length)), int(module.config.patch_length)
    patches = -(-max(map(len, rows)) // patch)
    return {
        "past_values": [row.to(module.device) for row in rows],
        "freq": [0] * len(rows),
        "forecast_context_len": patches * patch,
    }


def embed(module: Any, series: Tensor) -> Float[Tensor, "tokens d_model"]:
    """Embed every patch that holds an observation; positions and frequency are not added."""
    inputs = model_inputs(module, series)
    return kept_patches(output_of(module, module.decoder.input_ff_layer, inputs), inputs, module.config.patch_length)


def kept_patches(
    embedded: Float[Tensor, "series patches d_model"], inputs: dict[str, Any], size: int
) -> Float[Tensor, "tokens d_model"]:
    """Leave out patches of padding, which stand before shorter series."""
    counts = [-(-len(row) // size) for row in inputs["past_values"]]
    return torch.cat([row[-count:] for row, count in zip(embedded, counts, strict=True)])


FAMILY = Family(
    name="timesfm",
    title="TimesFM",
    strategy="continuous",
    matches=has_type("timesfm"),
    sites=sites,
    patch_size=patch_size,
    expected_shapes=expected_shapes,
    build=whole_model("transformers", "TimesFmModelForPrediction"),
    embed=embed,
    model_inputs=model_inputs,
    context=lambda config: positive(config, "context_length"),
    blocks=lambda module: {"decoder": layers_at(module, "decoder.layers")},
    published_patch=32,
    hub_ids=("google/timesfm-2.0-500m-pytorch",),
    stand_in="bundled-timesfm",
    proxy=True,
)
