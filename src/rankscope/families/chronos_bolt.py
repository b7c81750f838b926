"""Chronos-Bolt: a T5 over embedded patches, with a decoder that emits all quantiles at once."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.errors import CheckpointError
from rankscope.families.layers import (
    STACK_LAYERS,
    head_sites,
    patch_sites,
    residual_shapes,
    stack_blocks,
    stack_shapes,
    stack_sites,
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
    prediction_length,
)
from rankscope.families.series import check_series
from rankscope.families.sites import Site
from rankscope.families.stream import sliced_shapes, sliced_ties


def matches(config: Config) -> bool:
    """Return True if the config names the Bolt model or pipeline."""
    return named_in(config, "ChronosBoltModelForForecasting", "ChronosBoltPipeline")


def sites(config: Config) -> tuple[Site, ...]:
    """Patch embedding, both stacks, then the head."""
    return (*patch_sites(), *stack_sites(config), *head_sites("decoder"))


def patch_size(config: Config) -> int:
    """Observations per patch."""
    return positive(chronos_config(config), "input_patch_size")


def expected_shapes(config: Config) -> Shapes:
    """Every tensor of the model: special tokens, patch embedding, stacks, output head."""
    inner = chronos_config(config)
    d_model = positive(config, "d_model")
    outputs = quantile_count(inner) * positive(inner, "prediction_length")
    check_patches(inner, patch_size(config))
    shapes = {
        "shared.weight": (special_tokens(inner), d_model),
        # A patch is embedded together with its mask of observations.
        **residual_shapes(config, "input_patch_embedding", 2 * patch_size(config), d_model),
        **stack_shapes(config),
        **residual_shapes(config, "output_patch_embedding", d_model, outputs),
    }
    return sliced_shapes(shapes, config)


def check_patches(inner: Config, size: int) -> None:
    """Refuse a context or a stride that is not a whole number."""
    positive(inner, "context_length")
    positive(inner, "input_patch_stride", size)


def tied_shapes(config: Config) -> Shapes:
    """Copies of the special tokens under the names of the stacks."""
    table = (special_tokens(chronos_config(config)), positive(config, "d_model"))
    return sliced_ties({"encoder.embed_tokens.weight": table, "decoder.embed_tokens.weight": table}, config)


def special_tokens(inner: Config) -> int:
    """Rows of the token table: padding, and the register token where the model uses one."""
    return 2 if inner.get("use_reg_token") else 1


def quantile_count(inner: Config) -> int:
    """Return the number of quantiles that the head emits."""
    quantiles = inner.get("quantiles")
    if not isinstance(quantiles, list) or not quantiles:
        raise CheckpointError(
            f"config.json: chronos_config.quantiles must be a non-empty list, found {quantiles!r}; "
            f"use the config.json that was saved with the weights."
        )
    return len(quantiles)


def model_inputs(module: Any, series: Tensor) -> dict[str, Tensor]:
    """Series (axes series, time) as the model's context, cut to its last observations."""
    check_series(series)
    length = int(module.chronos_config.context_length)
    return {"context": series[:, -length:].to(device=module.device, dtype=torch.float32)}


def embed(module: Any, series: Tensor) -> Float[Tensor, "tokens d_model"]:
    """Embed every observed patch of a corpus (axes series, time) as ``module.encode`` does."""
    context = model_inputs(module, series)["context"]
    with torch.no_grad():
        observed = module.patch(context.isnan().logical_not().to(module.dtype)).nan_to_num(nan=0.0)
        scaled, _ = module.instance_norm(context)
        values = torch.where(observed > 0, module.patch(scaled.to(module.dtype)), 0.0)
        kept = observed.sum(dim=-1) > 0
        return module.input_patch_embedding(torch.cat([values, observed], dim=-1)[kept])


def number_line(module: Any, config: Config) -> tuple[Float[Tensor, " points"], Float[Tensor, "points d_model"]]:
    """512 numbers from −15 to 15, and embedded patches whose values all are that number.

    Patches are not normalised, which would turn them all into zeros.
    """
    values, size = torch.linspace(-15, 15, 512), patch_size(config)
    patches = torch.cat([values[:, None].expand(-1, size), torch.ones(len(values), size)], dim=1)
    with torch.no_grad():
        return values, module.input_patch_embedding(patches.to(module.dtype))


FAMILY = Family(
    name="chronos-bolt",
    title="Chronos-Bolt",
    strategy="continuous",
    matches=matches,
    sites=sites,
    patch_size=patch_size,
    expected_shapes=expected_shapes,
    tied_shapes=tied_shapes,
    build=whole_model("chronos.chronos_bolt", "ChronosBoltModelForForecasting"),
    embed=embed,
    model_inputs=model_inputs,
    blocks=stack_blocks,
    aliases={"shared.weight": ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")},
    published_patch=16,
    hub_ids=tuple(f"amazon/chronos-bolt-{size}" for size in ("tiny", "mini", "small", "base")),
    stand_in="bundled-bolt",
    answers="quantiles",
    decoding="once",
    # The decoder reads one token: the softmax over one position is 1 whatever queries and keys are.
    untrained=(("decoder", "self.q"), ("decoder", "self.k")),
    context=context_length,
    horizon=prediction_length,
    forecast_inputs=lambda module, context, horizon: model_inputs(module, context),
    number_line=number_line,
    low_rank=LowRank("rankscope-bolt", "LowRankBoltModel", "LowRankBoltPipeline"),
    depth=STACK_LAYERS,
    trainable=True,
    healable=True,
    embedding_fields=("chronos_config.use_reg_token", "feed_forward_proj"),
    answer_fields=tuple(
        f"chronos_config.{key}"
        for key in ("input_patch_size", "input_patch_stride", "quantiles", "prediction_length", "use_reg_token")
    ),
    fast=True,
)
