"""How the weights of a fresh network are drawn, where a short run cannot afford the published start."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

QUIET_OUTPUT = 0.1
"""Scale of Chronos-Bolt's output block: first forecasts stay near the mean of the history."""
POSITION_SPREAD = 2.0
"""Standard deviation of the position biases under ``broad``, attention logits."""
STEEPEST, FLATTEST = 2.0, 0.05
"""Slopes of the position biases under ``recency``, attention logits per token of distance."""
RECENCY_NOISE = 0.5
"""Standard deviation of the position biases around their slopes under ``recency``, attention logits."""
FEED_FORWARD_SCALE = 0.3
"""Scale of the feed-forward weights under ``recency``, as an `initializer_factor`."""
EXACT_OFFSETS = 1024
"""Offsets that are looked at to find the nearest one of a position bucket; every bucket begins below it."""


@torch.no_grad()
def start_broadly(model: Any) -> None:
    """Spread the position biases; give the vocabulary unit variance, Bolt's patch blocks that of their fan-in."""
    for name, weight in model.named_parameters():
        if "relative_attention_bias" in name:
            torch.nn.init.normal_(weight, std=POSITION_SPREAD)
    if not hasattr(model, "input_patch_embedding"):
        torch.nn.init.normal_(model.shared.weight, std=1.0)
        return
    for block, scale in ((model.input_patch_embedding, 1.0), (model.output_patch_embedding, QUIET_OUTPUT)):
        for linear in (block.hidden_layer, block.output_layer, block.residual_layer):
            torch.nn.init.normal_(linear.weight, std=linear.in_features**-0.5)
        for linear in (block.output_layer, block.residual_layer):
            linear.weight.mul_(scale)


@torch.no_grad()
def start_recent(model: Any) -> None:
    """Start broadly, then let every head look back a distance of its own, through values and outputs of full scale.

    Head h's scores fall by a slope per token of distance, the slopes spaced evenly in the logarithm from steep to flat
    as in ALiBi (arXiv 2108.12409, section 3), so that from the first step on some head reads the newest token alone
    and some head all of them. Values and outputs get the variance of T5's own law at factor 1, because at the published
    0.05 what attention reads does not reach the residual stream; queries and keys stay small.
    """
    start_broadly(model)
    for name, weight in model.named_parameters():
        if "relative_attention_bias" in name:
            nearest = nearest_offsets(model.config, bidirectional=name.startswith("encoder"))
            slope = torch.logspace(math.log10(FLATTEST), math.log10(STEEPEST), weight.shape[1])
            weight.copy_(-nearest[:, None] * slope[None, :] + RECENCY_NOISE * torch.randn_like(weight))
    factor = model.config.initializer_factor
    _rescale(model, ("v", "o"), 1.0 / factor)
    _rescale(model, ("wi", "wi_0", "wi_1", "wo"), FEED_FORWARD_SCALE / factor)


def nearest_offsets(config: Any, *, bidirectional: bool) -> Float[Tensor, " buckets"]:
    """Return the smallest distance, in tokens, of each of T5's position buckets; 0 for a bucket that none falls in.

    Args:
        config: a T5 config.
        bidirectional: whether keys after the query have buckets of their own, as in the encoder.
    """
    from transformers.models.t5.modeling_t5 import T5Attention

    offsets = torch.arange(-EXACT_OFFSETS, EXACT_OFFSETS + 1)
    bucket = T5Attention._relative_position_bucket(
        offsets,
        bidirectional=bidirectional,
        num_buckets=config.relative_attention_num_buckets,
        max_distance=config.relative_attention_max_distance,
    )
    nearest = torch.zeros(config.relative_attention_num_buckets)
    for index in range(len(nearest)):
        inside = offsets[bucket == index].abs()
        nearest[index] = float(inside.min()) if len(inside) else 0.0
    return nearest


def _rescale(model: Any, roles: tuple[str, ...], scale: float) -> None:
    """Multiply the matrices of these modules; one that is stored as a product is scaled evenly in its factors."""
    for name, module in model.named_modules():
        if name.rsplit(".", 1)[-1] in roles:
            factors = [weight for weight in module.parameters() if weight.ndim >= 2]
            for weight in factors:
                weight.mul_(scale ** (1 / len(factors)))
