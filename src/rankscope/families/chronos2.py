"""Chronos-2: an encoder over patches whose layers attend along time and across the series of a group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankscope.errors import CheckpointError
from rankscope.families.chronos_bolt import check_patches, model_inputs, patch_size, quantile_count, special_tokens
from rankscope.families.layers import (
    attention_sites,
    head_sites,
    layer_shape,
    patch_sites,
    residual_shapes,
    stack_blocks,
)
from rankscope.families.loading import whole_model
from rankscope.families.record import (
    Config,
    Family,
    LowRank,
    Shapes,
    chronos_config,
    context_length,
    named_in,
    positive,
)
from rankscope.families.sites import Site
from rankscope.families.stream import sliced_shapes
from rankscope.families.weight_layout import head_widths

LONE_AND_GROUPED = 8
"""Series of which a batch has the first half one by one and the second half as one group."""
ROTARY = ("self",)
"""Attention along time has rotary positions; that over the series of a group has none."""


def matches(config: Config) -> bool:
    """Return True if the config names the Chronos-2 model or pipeline."""
    return named_in(config, "Chronos2Model", "Chronos2Pipeline")


def sites(config: Config) -> tuple[Site, ...]:
    """Patch embedding, per layer time attention (``self``), ``group`` attention and MLP, then the head."""
    return (*patch_sites(), *_layer_sites(config), *head_sites("encoder"))


def _layer_sites(config: Config) -> Iterator[Site]:
    for layer in range(positive(config, "num_layers")):
        block = f"encoder.block.{layer}.layer"
        for part, scope in enumerate(("self", "group")):
            attention = f"{block}.{part}.self_attention"
            widths = head_widths(config, attention, positive(config, "num_heads"))
            if widths is not None and scope in ROTARY and set(widths.qk) != {positive(config, "d_kv")}:
                raise CheckpointError(
                    f"config.json: site {attention} has queries and keys of other widths than d_kv, but there "
                    "Chronos-2 turns them by rotary positions, which fix their width; use the config.json that was "
                    "saved with the weights."
                )
            yield from attention_sites(attention, "encoder", layer, scope, config)
        yield Site(f"{block}.2.mlp.wi.weight", "encoder", layer, "mlp_in")
        yield Site(f"{block}.2.mlp.wo.weight", "encoder", layer, "mlp_out")


def expected_shapes(config: Config) -> Shapes:
    """Every tensor of the model: special tokens, patch embedding, encoder, output head."""
    inner = chronos_config(config)
    d_model, size = positive(config, "d_model"), patch_size(config)
    outputs = quantile_count(inner) * positive(inner, "output_patch_size", size)
    check_patches(inner, size)
    norms: Shapes = {
        f"encoder.block.{layer}.layer.{part}.layer_norm.weight": (d_model,)
        for layer in range(positive(config, "num_layers"))
        for part in range(3)
    }
    shapes = {
        "shared.weight": (special_tokens(inner), d_model),
        # A patch is embedded together with its time encoding and its mask of observations.
        **residual_shapes(config, "input_patch_embedding", 3 * size, d_model),
        **{site.name: layer_shape(site, config) for site in _layer_sites(config)},
        **norms,
        "encoder.final_layer_norm.weight": (d_model,),
        **residual_shapes(config, "output_patch_embedding", d_model, outputs),
    }
    return sliced_shapes(shapes, config)


def embed(module: Any, series: Tensor) -> Float[Tensor, "tokens d_model"]:
    """Embed every observed patch of a corpus (axes series, time) as ``module.encode`` does."""
    with torch.no_grad():
        patches, kept, _ = module._prepare_patched_context(**model_inputs(module, series))
        return module.input_patch_embedding(patches[kept])


def forecast_inputs(module: Any, context: Tensor, horizon: int) -> dict[str, Any]:
    """The histories with a place for every patch of the horizon, half of them in groups of four."""
    patch, most = module.chronos_config.output_patch_size, module.chronos_config.max_output_patches
    groups = mixed_groups(len(context)).to(module.device)
    return {
        **model_inputs(module, context),
        "group_ids": groups,
        "num_output_patches": min(-(-horizon // patch), most),
    }


def longest_horizon(config: Config) -> int:
    """Return the most steps that one pass forecasts."""
    inner = chronos_config(config)
    return positive(inner, "max_output_patches", 1) * positive(inner, "output_patch_size", patch_size(config))


def mixed_groups(n: int) -> Int[Tensor, " series"]:
    """Groups of a batch: of every eight series four alone, then four that attend to each other.

    Where all are alone, attention over a group has nothing to choose between, and its queries and keys would seem to be
    of no use.

    >>> mixed_groups(10).tolist()
    [0, 1, 2, 3, 4, 4, 4, 4, 8, 9]
    """
    place = torch.arange(n)
    return place - (place % LONE_AND_GROUPED - LONE_AND_GROUPED // 2).clamp(min=0)


FAMILY = Family(
    name="chronos-2",
    title="Chronos-2",
    strategy="continuous",
    matches=matches,
    sites=sites,
    patch_size=patch_size,
    expected_shapes=expected_shapes,
    build=whole_model("chronos.chronos2.model", "Chronos2Model"),
    embed=embed,
    model_inputs=model_inputs,
    blocks=stack_blocks,
    rotary=ROTARY,
    published_patch=16,
    hub_ids=("amazon/chronos-2",),
    stand_in="bundled-2",
    answers="quantiles",
    context=context_length,
    horizon=longest_horizon,
    forecast_inputs=forecast_inputs,
    low_rank=LowRank("rankscope-chronos2", "LowRankChronos2Model", "LowRankChronos2Pipeline"),
    depth={"encoder": "num_layers"},
    grouped=True,
    trainable=True,
    healable=True,
    embedding_fields=tuple(f"chronos_config.{key}" for key in ("use_reg_token", "use_arcsinh", "time_encoding_scale")),
    answer_fields=tuple(f"chronos_config.{key}" for key in ("input_patch_size", "output_patch_size", "quantiles")),
)
