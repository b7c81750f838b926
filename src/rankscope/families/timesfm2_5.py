"""TimesFM 2.5: rotary positions, and every patch scaled by what was seen before it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.errors import FamilyError
from rankscope.families import timesfm
from rankscope.families.layers import attention, layers_at, matrix_shapes
from rankscope.families.loading import load_module, output_of
from rankscope.families.record import Config, Family, Shapes, has_type, positive
from rankscope.families.sites import Site


def sites(config: Config) -> tuple[Site, ...]:
    """Patch embedding, then the layers."""
    return (*timesfm.embedding_sites("model.input_ff_layer"), *_layer_sites(config))


def _layer_sites(config: Config) -> Iterator[Site]:
    split = timesfm.heads(config)
    for layer in range(positive(config, "num_hidden_layers")):
        block = f"model.layers.{layer}"
        yield from attention(f"{block}.self_attn", "decoder", layer, split, names=timesfm.NAMES)
        yield Site(f"{block}.mlp.ff0.weight", "decoder", layer, "mlp_in")
        yield Site(f"{block}.mlp.ff1.weight", "decoder", layer, "mlp_out")


def expected_shapes(config: Config) -> Shapes:
    """Every attention, MLP and embedding matrix."""
    d_model, d_ff = positive(config, "hidden_size"), positive(config, "intermediate_size")
    return {
        **timesfm.embedding_shapes("model.input_ff_layer", timesfm.patch_size(config), d_model, d_model),
        **matrix_shapes(tuple(_layer_sites(config)), d_model, d_ff),
    }


def build(folder: Path, dtype: torch.dtype) -> nn.Module:
    """Load TimesFm2_5ModelForPrediction.

    Raises:
        FamilyError: the installed transformers is older than the model.
    """
    try:
        from transformers import TimesFm2_5ModelForPrediction
    except ImportError as error:
        raise FamilyError("TimesFM 2.5 needs a newer transformers: pip install -U transformers.") from error
    return load_module(folder, TimesFm2_5ModelForPrediction, dtype)


def model_inputs(module: Any, series: Tensor) -> dict[str, Any]:
    """Series (axes series, time) as a list without missing values; the second pass over flipped series is left out."""
    inputs = timesfm.model_inputs(module, series)
    del inputs["freq"]
    return {**inputs, "force_flip_invariance": False}


def embed(module: Any, series: Tensor) -> Float[Tensor, "tokens d_model"]:
    """Embed every patch that holds an observation."""
    inputs = model_inputs(module, series)
    embedded = output_of(module, module.model.input_ff_layer, inputs)
    return timesfm.kept_patches(embedded, inputs, module.config.patch_length)


FAMILY = Family(
    name="timesfm-2.5",
    title="TimesFM 2.5",
    strategy="continuous",
    matches=has_type("timesfm2_5"),
    sites=sites,
    patch_size=timesfm.patch_size,
    expected_shapes=expected_shapes,
    build=build,
    embed=embed,
    model_inputs=model_inputs,
    context=timesfm.FAMILY.context,
    blocks=lambda module: {"decoder": layers_at(module, "model.layers")},
    rotary=("self",),
    published_patch=32,
    hub_ids=("google/timesfm-2.5-200m-transformers",),
    stand_in="bundled-timesfm2_5",
    proxy=True,
)
