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
SLOPES = {"observation": (2.0, 0.02), "patch": (2.0, 0.02)}
"""What a token is → steepest and flattest slope of the position biases under ``recency``, logits per token."""
RECENCY_NOISE = 0.5
"""Standard deviation of the position biases around their slopes under ``recency``, logits."""
OWN_TOKEN = -3.0
"""Position bias of an encoder token towards itself under ``recency``, logits: the residual stream carries it anyway."""
FEED_FORWARD_SCALE = 0.3
"""Scale of the feed-forward weights under ``recency``, as an `initializer_factor`."""
MASK_SCALE = 0.4
"""Scale of the mask's columns in Chronos-Bolt's input block: where nothing is missing they add the same to all."""
VALUE_FREQUENCIES = (0.2, 60.0)
"""Lowest and highest frequency of Chronos-T5's vocabulary under ``ordered``, radians per unit of the scaled values."""
VALUE_NOISE = 0.3
"""What every entry of that vocabulary has of its own, as a standard deviation beside the waves' 1."""
SCORE_SCALE = 0.4
"""Scale of queries and keys under ``recency``, as an `initializer_factor`: content must be heard beside positions."""
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
    """Start broadly, and such that the phase of the newest observations reaches the output from the first step on.

    At the published start (`initializer_factor` 0.05) it does not: the norms' gains, which share the factor, scale
    every sublayer's input by 0.05, all tokens are read evenly, which cancels every season that is no divisor of the
    patch, and the decoder reads the average of all tokens. Here

    - gains are 1, values and outputs have the variance of T5's own law at factor 1, queries and keys and the
      feed-forward layers less, the embeddings that of a standard normal;
    - head h's scores fall by a slope per token of distance, the slopes spaced evenly in the logarithm as in ALiBi
      (arXiv 2108.12409, section 3), and encoder tokens hardly read themselves;
    - Chronos-Bolt's mask says little.

    Every matrix is drawn with independent entries, as at the published start, and has the ranks that it has there:
    nothing is said of the order of bins, of ranks or of seasons.
    """
    start_broadly(model)
    slopes = SLOPES["patch" if hasattr(model, "input_patch_embedding") else "observation"]
    factor = model.config.initializer_factor
    for name, weight in model.named_parameters():
        if "layer_norm" in name:
            weight.fill_(1.0)
        elif "relative_attention_bias" in name:
            _fall_with_distance(weight, slopes, model.config, encoder=name.startswith("encoder"))
    _rescale(model, ("v", "o"), 1.0 / factor)
    _rescale(model, ("q", "k"), SCORE_SCALE / factor)
    _rescale(model, ("wi", "wi_0", "wi_1", "wo"), FEED_FORWARD_SCALE / factor)
    torch.nn.init.normal_(model.shared.weight, std=1.0)
    if hasattr(model, "input_patch_embedding"):
        _quiet_mask(model)


@torch.no_grad()
def start_ordered(model: Any) -> None:
    """Start as `start_recent`, with a vocabulary of Chronos-T5 that knows the order of its bins.

    Bin centres lie along waves of many frequencies, with some noise of every bin's own: a network whose bins are
    strangers to each other spends thousands of steps on finding out which are neighbours, more than a short run has.
    What rank such a vocabulary has is in part a choice, not a finding.
    """
    start_recent(model)
    if not hasattr(model, "input_patch_embedding"):
        _order_vocabulary(model)


def _fall_with_distance(
    weight: Float[Tensor, "buckets heads"], slopes: tuple[float, float], config: Any, *, encoder: bool
) -> None:
    nearest = nearest_offsets(config, bidirectional=encoder)
    steepest, flattest = slopes
    slope = torch.logspace(math.log10(flattest), math.log10(steepest), weight.shape[1])
    weight.copy_(-nearest[:, None] * slope[None, :] + RECENCY_NOISE * torch.randn_like(weight))
    if encoder:
        weight[0] = OWN_TOKEN


def _order_vocabulary(model: Any) -> None:
    """Give bins of Chronos-T5 that are near each other like embeddings of unit variance; special tokens stay random."""
    weight, settings = model.shared.weight, model.config.chronos_config
    special, limits = settings["n_special_tokens"], settings["tokenizer_kwargs"]
    bins = torch.linspace(limits["low_limit"], limits["high_limit"], len(weight) - special)
    lowest, highest = (math.log(frequency) for frequency in VALUE_FREQUENCIES)
    frequency = torch.exp(lowest + (highest - lowest) * torch.rand(weight.shape[1]))
    waves = 2**0.5 * torch.sin(bins[:, None] * frequency + 2 * math.pi * torch.rand(weight.shape[1]))
    weight[special:] = (waves + VALUE_NOISE * torch.randn_like(waves)) / (1 + VALUE_NOISE**2) ** 0.5


def _quiet_mask(model: Any) -> None:
    block = model.input_patch_embedding
    for linear in (block.hidden_layer, block.residual_layer):
        linear.weight[:, linear.in_features // 2 :].mul_(MASK_SCALE)


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
