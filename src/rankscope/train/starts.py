"""Weight initialisation for short runs, and from checkpoints."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.checkpoints import Checkpoint, Description, describe, open_checkpoint
from rankscope.errors import OptionError
from rankscope.families import FAMILIES, Family, config_field
from rankscope.io import codec
from rankscope.train.config import ModelShape, PretrainConfig

QUIET_OUTPUT = 0.1
"""Scale of Chronos-Bolt's output block: first forecasts stay near the mean of the history."""
POSITION_SPREAD = 2.0
"""Standard deviation of the position biases under ``broad``, attention logits."""
SLOPES = {"observation": (2.0, 0.02), "patch": (2.0, 0.02)}
"""Kind of token → steepest and flattest slope of the position biases under ``recency``, logits per token."""
RECENCY_NOISE = 0.5
"""Standard deviation of the position biases around their slopes under ``recency``, logits."""
OWN_TOKEN = -3.0
"""Position bias of an encoder token towards itself under ``recency``, logits: the residual stream carries it anyway."""
FEED_FORWARD_SCALE = 0.3
"""Scale of the feed-forward weights under ``recency``, as an `initializer_factor`."""
MASK_SCALE = 0.4
"""Scale of the mask's columns in the input block of patches: where nothing is missing they add the same to all."""
VALUE_FREQUENCIES = (0.2, 60.0)
"""Lowest and highest frequency of Chronos-T5's vocabulary under ``ordered``, radians per unit of the scaled values."""
VALUE_NOISE = 0.3
"""Standard deviation of the noise in that vocabulary, beside the waves' 1."""
SCORE_SCALE = 0.4
"""Scale of queries and keys under ``recency``, as an `initializer_factor`: content must be heard beside positions."""
EXACT_OFFSETS = 1024
"""Offsets that are looked at to find the nearest one of a position bucket; every bucket begins below it."""
OF_WEIGHTS = tuple(
    field.name
    for field in dataclasses.fields(ModelShape)
    if field.name not in ("dropout_rate", "initializer_factor", "start")
)
"""Fields of a `ModelShape` that given weights fix."""
UNSEEN = ("feed_forward_proj", "relative_attention_max_distance", "layer_norm_epsilon")
"""Those of an encoder that no shape of a tensor shows."""
OF_ENCODER = ("d_model", "d_kv", "d_ff", "num_layers", "num_heads", "relative_attention_num_buckets", *UNSEEN)
"""Those that an encoder fixes."""


@torch.no_grad()
def start_broadly(model: Any) -> None:
    """Apply ``broad``: random position biases, a unit-variance vocabulary, fan-in scaling of Bolt's patch blocks."""
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
    every sublayer's input by 0.05, all tokens are read evenly, which cancels every season that is not a divisor of the
    patch, and the decoder reads the average of all tokens. Here

    - gains are 1, values and outputs have the variance of T5's own law at factor 1, queries and keys and the
      feed-forward layers less, the embeddings that of a standard normal;
    - head h's scores fall by a slope per token of distance, the slopes spaced evenly in the logarithm as in ALiBi
      (arXiv 2108.12409, section 3), and encoder tokens hardly read themselves;
    - the mask of missing values says little to patches.

    Chronos-2 has rotary positions in place of biases: no distance is preferred, and scores are of T5's own scale, since
    nothing but content tells tokens apart.

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
    _rescale(model, ("q", "k"), (SCORE_SCALE if hasattr(model, "decoder") else 1.0) / factor)
    _rescale(model, ("wi", "wi_0", "wi_1", "wo"), FEED_FORWARD_SCALE / factor)
    torch.nn.init.normal_(model.shared.weight, std=1.0)
    if hasattr(model, "input_patch_embedding"):
        _quiet_mask(model)


@torch.no_grad()
def start_ordered(model: Any) -> None:
    """Apply `start_recent` and initialise the vocabulary of Chronos-T5 in bin order.

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
    """Initialise neighbouring bins of Chronos-T5 with similar unit-variance embeddings; special tokens stay random."""
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
        linear.weight[:, -model.chronos_config.input_patch_size :].mul_(MASK_SCALE)


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


def shape_of(source: Description | Checkpoint) -> ModelShape:
    """Return the size of a Chronos model as a run names it.

    Raises:
        OptionError: its config.json gives no shape of a network.
    """
    try:
        return _shape(source.config, source.family)
    except OptionError as error:
        raise OptionError(f"{source.source}: config.json gives no shape of a network: {error}") from error


def _shape(config: Mapping[str, Any], family: Family) -> ModelShape:
    inner = config["chronos_config"]
    named = {field.name for field in dataclasses.fields(ModelShape)}
    shape: dict[str, Any] = {key: value for key, value in config.items() if key in named and value is not None}
    shape.setdefault("num_decoder_layers", config["num_layers"])
    if family.vocabulary is not None:
        shape["n_tokens"] = inner["n_tokens"]
    else:
        shape["patch_size"] = inner["input_patch_size"]
        shape.pop("tie_word_embeddings", None)  # models of patches read no tokens out
    return codec.build(ModelShape, shape)


def _first_other(network: Any, family: Family, source: Checkpoint, names: Iterable[str]) -> tuple[str, Any, Any] | None:
    """First field in which a network has another shape than a checkpoint: name, the checkpoint's, the network's."""
    there, here = shape_of(source), _shape(network.config.to_dict(), family)
    pairs = ((name, getattr(there, name), getattr(here, name)) for name in names)
    return next((pair for pair in pairs if pair[1] != pair[2]), None)


def continue_from(config: PretrainConfig, model: str) -> PretrainConfig:
    """Configure a run to start from a checkpoint, taking its family and, unless the run sets one, its shape.

    Args:
        config: the run.
        model: a folder, a hub id or a bundled name.

    Raises:
        OptionError: the checkpoint is of no family that is trained here.
        CheckpointError: it cannot be read.
    """
    source = describe(model)
    if not source.family.trainable:
        known = ", ".join(name for name, one in FAMILIES.items() if one.trainable)
        raise OptionError(f"{model} is {source.family.title}: only {known} can be trained on.")
    shape = shape_of(source) if config.model == ModelShape() else config.model
    horizon = config.horizon
    if source.family.decoding == "once":  # its last layer answers so many steps, neither more nor fewer
        horizon = int(source.config["chronos_config"]["prediction_length"])
    return dataclasses.replace(config, family=source.family.name, model=shape, horizon=horizon, weights=model)


@torch.no_grad()
def take_weights(network: Any, config: PretrainConfig) -> None:
    """Copy all weights of the checkpoint ``config.weights`` into a fresh network of the same layout.

    Raises:
        OptionError: it has another layout, or its numbers mean something else.
        CheckpointError: it cannot be read.
    """
    source = open_checkpoint(config.weights)
    where = f"weights {config.weights}"
    if source.family.name != config.family:
        raise OptionError(f"{where} is {source.family.name}, the run is {config.family}: write family: accordingly.")
    if stored := source.config.get("rankscope"):
        if stored.get("method") == "design":
            raise OptionError(f"{where} is low-rank by design: only weights of stock networks can be trained on.")
        raise OptionError(f"{where} is compressed: train it with 'rankscope heal'.")
    own = network.config.to_dict()
    for key in dict.fromkeys((*source.family.embedding_fields, *source.family.answer_fields)):
        here, there = config_field(own, key), config_field(source.config, key)
        if key.endswith("prediction_length") and source.family.decoding == "tokens":
            continue  # tokens follow each other as far as one likes
        if here != there and None not in (here, there):
            raise OptionError(f"{where}: {key} is {there!r} there and {here!r} here: its numbers mean something else.")
    if (other := _first_other(network, config.family_record, source, OF_WEIGHTS)) is not None:
        raise OptionError(
            f"{where}: {other[0]} is {other[1]} there and {other[2]} here: leave 'model' out of the config, and the "
            "shape is taken from the checkpoint."
        )
    for name, weight in network.named_parameters():
        with torch.device("cpu"):
            values = source.tensor(name)
        if values.shape != weight.shape:
            raise OptionError(
                f"{where}: {name} is {'×'.join(map(str, values.shape))} there and {'×'.join(map(str, weight.shape))} "
                "here: leave 'model' out of the config, and the shape is taken from the checkpoint."
            )
        weight.copy_(values)


def learn_from(config: PretrainConfig, model: str) -> PretrainConfig:
    """Configure a run to distil a teacher, with its shape and one decoder layer unless the run sets a shape.

    Args:
        config: the run.
        model: a folder, a hub id or a bundled name.

    Raises:
        CheckpointError: the teacher cannot be read.
    """
    source = describe(model)
    shape = config.model
    if shape == ModelShape() and source.family.trainable:
        theirs = shape_of(source)
        shape = dataclasses.replace(
            shape, num_decoder_layers=1, start="recency", **{name: getattr(theirs, name) for name in OF_ENCODER}
        )
    teacher = dataclasses.replace(config.teacher, model=model)
    return dataclasses.replace(config, family="chronos-bolt", model=shape, teacher=teacher)


@torch.no_grad()
def take_encoder(network: Any, config: PretrainConfig) -> None:
    """Copy the encoder blocks of ``config.teacher``, position biases and norms included, into a fresh network.

    With ``teacher.encoder: false`` it is only looked at whether the teacher forecasts.

    Raises:
        OptionError: the teacher does not forecast, or its encoder has another layout.
        CheckpointError: it cannot be read.
    """
    source = open_checkpoint(config.teacher.model)
    if source.family.answers is None:
        known = ", ".join(name for name, one in FAMILIES.items() if one.answers is not None)
        raise OptionError(
            f"teacher {config.teacher.model} is {source.family.title}, which does not forecast: {known} do."
        )
    if not config.teacher.encoder:
        return
    for name, weight in network.encoder.named_parameters():
        if name.startswith("embed_tokens"):
            continue
        with torch.device("cpu"):
            values = source.tensor(f"encoder.{name}") if f"encoder.{name}" in source.index else None
        if values is None or values.shape != weight.shape:
            there = "missing" if values is None else "×".join(map(str, values.shape))
            raise OptionError(
                f"teacher {config.teacher.model}: encoder.{name} is {there} there and "
                f"{'×'.join(map(str, weight.shape))} here: set teacher.encoder: false, or train the teacher's shape."
            )
        weight.copy_(values)
    if (other := _first_other(network, config.family_record, source, UNSEEN)) is not None:
        raise OptionError(
            f"teacher {config.teacher.model}: {other[0]} is {other[1]} there and {other[2]} here: set "
            "teacher.encoder: false, or train the teacher's shape."
        )
