"""Training that begins with the weights of another checkpoint: fine-tuning, or going on where only weights are left."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from rankscope.checkpoints import Description, describe, open_checkpoint
from rankscope.errors import OptionError
from rankscope.families import FAMILIES, config_field
from rankscope.io import codec
from rankscope.train.config import ModelShape, PretrainConfig


def shape_of(source: Description) -> ModelShape:
    """Return the size of a Chronos-T5 or Chronos-Bolt as a run names it.

    Raises:
        OptionError: its config.json gives no shape of a network.
    """
    config, inner = source.config, source.config["chronos_config"]
    named = {field.name for field in dataclasses.fields(ModelShape)}
    shape: dict[str, Any] = {key: value for key, value in config.items() if key in named and value is not None}
    shape.setdefault("num_decoder_layers", config["num_layers"])
    if source.family.vocabulary is not None:
        shape["n_tokens"] = inner["n_tokens"]
    else:
        shape["patch_size"] = inner["input_patch_size"]
        shape.pop("tie_word_embeddings", None)  # Chronos-Bolt reads no tokens out
    try:
        return codec.build(ModelShape, shape)
    except OptionError as error:
        raise OptionError(f"{source.source}: config.json gives no shape of a network: {error}") from error


def continue_from(config: PretrainConfig, model: str) -> PretrainConfig:
    """Let a run begin with the weights of a checkpoint, whose family and, where the run names none, shape it takes.

    Args:
        config: the run.
        model: a folder, a hub id or a bundled name.

    Raises:
        OptionError: the checkpoint is no Chronos-T5 or Chronos-Bolt.
        CheckpointError: it cannot be read.
    """
    source = describe(model)
    if not source.family.trainable:
        known = " and ".join(name for name, one in FAMILIES.items() if one.trainable)
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
    if source.config.get("rankscope"):
        raise OptionError(f"{where} is compressed: train it with 'rankscope heal'.")
    own = network.config.to_dict()
    for key in dict.fromkeys((*source.family.embedding_fields, *source.family.answer_fields)):
        here, there = config_field(own, key), config_field(source.config, key)
        if key.endswith("prediction_length") and source.family.decoding == "tokens":
            continue  # tokens follow each other as far as one likes
        if here != there and None not in (here, there):
            raise OptionError(f"{where}: {key} is {there!r} there and {here!r} here: its numbers mean something else.")
    for name, weight in network.named_parameters():
        with torch.device("cpu"):
            values = source.tensor(name)
        if values.shape != weight.shape:
            raise OptionError(
                f"{where}: {name} is {'×'.join(map(str, values.shape))} there and {'×'.join(map(str, weight.shape))} "
                "here: leave 'model' out of the config, and the shape is taken from the checkpoint."
            )
        weight.copy_(values)
