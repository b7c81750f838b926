"""Model families (`Family`): what is known of one and what it can do, and how its config is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.errors import CheckpointError
from rankscope.families.sites import Site, Stack

Config = Mapping[str, Any]
Shapes = dict[str, tuple[int, ...]]
Strategy = Literal["quantisation", "continuous", "text"]
Modality = Literal["series", "text", "image"]
Answers = Literal["samples", "quantiles"]
Decoding = Literal["tokens", "once"]

MOST_LAYERS = 10_000
"""Layers or channels that a config may say: far more than any model has, few enough to be counted through."""


@dataclass(frozen=True)
class LowRank:
    """Names by which a compressed checkpoint of a family introduces itself to transformers and chronos-forecasting."""

    model_type: str
    architecture: str
    pipeline: str | None = None


@dataclass(frozen=True)
class Family:
    """A model family: where its matrices are, how its input becomes embedded tokens, and what it can do.

    The functions that take a ``config`` read the plain dict of ``config.json`` and import nothing heavy;
    those that take a ``folder`` or a ``module`` import transformers or chronos when they are called.

    Attributes:
        name: key in `rankscope.families.FAMILIES`.
        title: name for tables and figures.
        strategy: how signals become tokens: ``quantisation``, ``continuous`` or ``text`` (Table 1).
        matches: whether a ``config.json`` describes a model of this family.
        sites: every attention, MLP and embedding matrix, in the order of computation.
        patch_size: observations per token.
        expected_shapes: every tensor that a dense checkpoint of this config must hold.
        tied_shapes: further tensors that may be stored as copies of another one.
        build: module in evaluation mode from a local folder; compressed folders included.
        embed: rows are the embedded tokens of a corpus, the transpose of the paper's U (Q3). Padding, missing
            patches and special tokens are left out.
        model_inputs: keyword arguments of ``module.forward`` that run every layer once.
        blocks: per stack the layers, whose first argument is the layer's input.
        vocabulary: rows are the embedded vocabulary (the transpose of the paper's Ξ), or None.
        rotary: scopes of the attentions (``self``, ``group``) whose queries and keys are turned by rotary positions.
        aliases: names under which a tensor may be stored instead of its own.
        modality: what the model reads: ``series`` (axes series, time), ``text`` (token ids with axes texts, tokens) or
            ``image`` (axes images, 3, size, size; values from 0 to 1).
        prefixes: what may stand before every name of a tensor, as a model inside another one has it.
        published_patch: observations per token of the published models (Table 1); None where it differs among them.
        hub_ids: published checkpoints.
        stand_in: bundled checkpoint of the family that this project trained.
        layered: whether it has the layers of a transformer, whose inputs can be looked into.
        in_time: whether tokens follow each other as what they stand for does.
        answers: what its forecasts are made of: sample paths or quantiles; None where it forecasts no series.
        decoding: whether its decoder emits ``tokens`` one after the other or everything at ``once``; None without one.
        untrained: stack and role of the matrices that no gradient reaches, so that they keep their random start.
        context: observations that a forecast reads at most, None where the config does not say.
        horizon: steps that it was made to forecast, likewise.
        forecast_inputs: keyword arguments of ``module.forward`` as a forecast sees them, from module, histories (axes
            series, time) and steps; those of a decoder that emits tokens are left to who decides what it reads.
        target_tokens: what such a decoder reads under teacher forcing, from module, histories and what did follow.
        number_line: numbers in ascending order and their embedded vectors, from module and config; None where single
            numbers are not embedded.
        low_rank: what a compressed checkpoint declares; None where no low-rank class stores one.
        grouped: whether the series of a batch may attend to each other, in groups.
        trainable: whether models of it are pretrained here, on generated series.
        healable: whether a compressed model of it can be trained to answer as its teacher does.
        embedding_fields: fields of the config, dotted, that must agree for two embeddings to mean the same.
        answer_fields: those that must agree for one model to teach another.
        depth: fields of the config that count the layers of each stack, where layers can be removed.
        fast: whether `rankscope.forecast` has a runtime of its own for it.
        proxy: whether `rankscope.train.proxies` has a small model of it.
    """

    name: str
    title: str
    strategy: Strategy
    matches: Callable[[Config], bool]
    sites: Callable[[Config], tuple[Site, ...]]
    expected_shapes: Callable[[Config], Shapes]
    build: Callable[[Path, torch.dtype], nn.Module]
    embed: Callable[[nn.Module, Tensor], Float[Tensor, "tokens d_model"]]
    model_inputs: Callable[[nn.Module, Tensor], dict[str, Any]]
    blocks: Callable[[nn.Module], dict[str, list[nn.Module]]]
    patch_size: Callable[[Config], int] = lambda config: 1
    tied_shapes: Callable[[Config], Shapes] = lambda config: {}
    vocabulary: Callable[[nn.Module], Float[Tensor, "vocabulary d_model"]] | None = None
    rotary: tuple[str, ...] = ()
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    modality: Modality = "series"
    prefixes: tuple[str, ...] = ()
    published_patch: int | None = None
    hub_ids: tuple[str, ...] = ()
    stand_in: str | None = None
    layered: bool = True
    in_time: bool = True
    answers: Answers | None = None
    decoding: Decoding | None = None
    untrained: tuple[tuple[str, str], ...] = ()
    context: Callable[[Config], int | None] = lambda config: None
    horizon: Callable[[Config], int | None] = lambda config: None
    forecast_inputs: Callable[[Any, Tensor, int], dict[str, Any]] | None = None
    target_tokens: Callable[[Any, Tensor, Tensor], Tensor] | None = None
    number_line: Callable[[Any, Config], tuple[Tensor, Tensor]] | None = None
    low_rank: LowRank | None = None
    grouped: bool = False
    trainable: bool = False
    healable: bool = False
    embedding_fields: tuple[str, ...] = ()
    answer_fields: tuple[str, ...] = ()
    depth: Mapping[Stack, str] = field(default_factory=dict)
    fast: bool = False
    proxy: bool = False

    @property
    def forecastable(self) -> bool:
        """True if it forecasts series."""
        return self.answers is not None


def positive(config: Config, key: str, default: int | None = None, most: int = 2**31 - 1) -> int:
    """Read a whole number ≥ 1 from a config.

    Args:
        config: where from.
        key: its name; what counts layers is at most `MOST_LAYERS`.
        default: where the key is missing.
        most: the largest that is accepted; what is counted through needs a small one.

    Raises:
        CheckpointError: the key is missing and has no default, or its value is no such number.
    """
    value = config.get(key)
    if value is None:
        value = default
    largest = MOST_LAYERS if "layers" in key else most
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= largest:
        raise CheckpointError(
            f"config.json: {key} must be a whole number from 1 to {largest}, found {config.get(key)!r}; "
            f"use the config.json that was saved with the weights."
        )
    return value


def chronos_config(config: Config) -> Config:
    """Read the ``chronos_config`` object of a config.

    Raises:
        CheckpointError: it is missing or no object.
    """
    inner = config.get("chronos_config")
    if not isinstance(inner, Mapping):
        raise CheckpointError(
            f"config.json: chronos_config must be an object, found {inner!r}; "
            f"use the config.json that was saved with the weights."
        )
    return inner


def context_length(config: Config) -> int | None:
    """Observations that a Chronos model reads at most."""
    return _length(config, "context_length")


def prediction_length(config: Config) -> int | None:
    """Steps that a Chronos model forecasts."""
    return _length(config, "prediction_length")


def _length(config: Config, key: str) -> int | None:
    inner = chronos_config(config)
    return None if inner.get(key) is None else positive(inner, key)


def config_field(config: Config, dotted: str) -> Any:
    """Value of a field of a config, None where it has none.

    >>> config_field({"chronos_config": {"n_tokens": 4096}}, "chronos_config.n_tokens")
    4096
    """
    value: Any = config
    for key in dotted.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def has_type(*names: str) -> Callable[[Config], bool]:
    """Return what tells the configs whose ``model_type`` is one of ``names``."""
    return lambda config: config.get("model_type") in names


def named_in(config: Config, architecture: str, pipeline: str) -> bool:
    """Return True if a config names a model class among its architectures, or a chronos pipeline class."""
    architectures = config.get("architectures")
    listed = architectures if isinstance(architectures, list) else []
    return architecture in listed or config.get("chronos_pipeline_class") == pipeline
