"""The embedding of a fresh network: taken from another checkpoint (the paper's "reuse"), or frozen as it is."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.errors import OptionError
from rankscope.families import config_field
from rankscope.numerics.factored import FactoredMatrix
from rankscope.train.config import PretrainConfig

_DEFAULTS = {"feed_forward_proj": "relu"}
"""Values of fields that a config may leave out."""


def embedding_parameters(model: Any) -> dict[str, nn.Parameter]:
    """Parameters that embed the input: the vocabulary (Bolt: the special tokens), and Bolt's input patch block."""
    found = {"shared.weight": model.shared.weight}
    block = getattr(model, "input_patch_embedding", nn.Module())
    return found | {f"input_patch_embedding.{name}": weight for name, weight in block.named_parameters()}


def freeze_embedding(model: Any) -> None:
    """Keep training from changing the embedding: the optimiser, and with it weight decay, never sees it.

    The vocabulary of a Chronos-T5 with a tied head also reads the tokens out, so it is frozen in both roles: the
    network learns to point at a read-out that stays where it is.
    """
    for weight in embedding_parameters(model).values():
        weight.requires_grad_(False)


@torch.no_grad()
def inherit_embedding(model: Any, config: PretrainConfig) -> None:
    """Copy the embedding of the checkpoint ``config.embedding.model`` into ``model``.

    Raises:
        OptionError: the checkpoint is of another family, or its embedding has another shape or means other values.
        CheckpointError: it cannot be read.
    """
    source = open_checkpoint(config.embedding.model)
    _check_meaning(source, config, model.config.to_dict())
    for name, weight in embedding_parameters(model).items():
        with torch.device("cpu"):  # numbers, also where the model is a sketch without any (device meta)
            values = _stored(source, name)
        if values.shape != weight.shape:
            raise OptionError(
                f"embedding.model {config.embedding.model}: {name} is {_by(values)} there and {_by(weight)} here: "
                "inherit from a model of the same d_model, d_ff, vocabulary and patch size."
            )
        weight.copy_(values)


def _check_meaning(source: Checkpoint, config: PretrainConfig, own: dict[str, Any]) -> None:
    where = f"embedding.model {config.embedding.model}"
    if source.family.name != config.family:
        raise OptionError(f"{where} is {source.family.name}, the run is {config.family}: their embeddings differ.")
    for key in source.family.embedding_fields:
        here, there = (
            _DEFAULTS.get(key) if value is None else value
            for value in (config_field(own, key), config_field(source.config, key))
        )
        if here != there:
            raise OptionError(f"{where}: {key} is {there!r} there and {here!r} here: its rows mean something else.")


def _stored(source: Checkpoint, name: str) -> Tensor:
    module, _, kind = name.rpartition(".")
    for site in source.sites("embedding"):
        if site.module == module:
            if kind == "bias":
                return source.tensor(f"{module}.up.bias" if module in source.factored else name)
            matrix = source.matrix(site)
            return matrix.dense() if isinstance(matrix, FactoredMatrix) else matrix
    return source.tensor(name)


def _by(tensor: Tensor) -> str:
    return "×".join(str(size) for size in tensor.shape)
