"""One dataclass says everything about a pretraining run, and one YAML file holds it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankscope.choices import PRECISIONS
from rankscope.errors import OptionError, check_least, unknown_choice
from rankscope.io import codec
from rankscope.train.data.mixture import Mixture
from rankscope.train.rank_schedule import RankDesign

if TYPE_CHECKING:
    from rankscope.families import Family

STARTS = ("published", "broad", "recency", "ordered")
SCHEDULES = ("linear", "cosine", "constant", "warmup_stable_decay")
ACTIVATIONS = ("relu", "gelu", "gelu_new", "silu", "swish", "tanh")
EMBEDDING_SOURCES = ("random", "inherit", "chebyshev")
SIZES = (
    "d_model", "d_kv", "d_ff", "num_layers", "num_decoder_layers", "num_heads", "n_tokens", "patch_size",
    "relative_attention_num_buckets", "relative_attention_max_distance",
)  # fmt: skip
"""Fields of a `ModelShape` that are at least 1."""
COUNTS = ("context", "horizon", "max_steps", "batch_size", "accumulation", "save_steps", "log_steps")
NOT_NEGATIVE = (
    "learning_rate", "weight_decay", "max_grad_norm", "warmup_steps", "decay_steps", "bank_kernels", "seed"
)  # fmt: skip
"""Fields of a `PretrainConfig` that are at least 1, and at least 0."""


@dataclass(frozen=True)
class ModelShape:
    """Size of the network, in T5's own names.

    Attributes:
        d_model: width of the residual stream.
        d_kv: width of one attention head.
        d_ff: width of the feed-forward layers.
        num_layers: encoder layers.
        num_decoder_layers: decoder layers.
        num_heads: heads of every attention.
        n_tokens: vocabulary (Chronos-T5): special tokens and bins.
        patch_size: observations per patch (Chronos-Bolt).
        dropout_rate: dropout while training.
        initializer_factor: scale of the initial weights (0.05 in the published Chronos configs).
        feed_forward_proj: activation of the feed-forward layers, ``relu`` or, gated, e.g. ``gated-gelu``.
        relative_attention_num_buckets: distances that a position bias tells apart.
        relative_attention_max_distance: distance, in tokens, from which on it tells none apart.
        layer_norm_epsilon: what keeps the layer norms from dividing by zero.
        tie_word_embeddings: whether Chronos-T5 reads tokens out with its vocabulary, or has a head of its own.
        start: ``published`` leaves the weights as the stock model draws them. ``broad`` gives position biases a
            spread, the vocabulary of Chronos-T5 unit variance, and every Linear of Chronos-Bolt's patch blocks the
            scale of its own fan-in. ``recency`` besides lets every head look back a distance of its own, through
            values and outputs of full scale, and ``ordered`` tells the vocabulary the order of its bins; see
            `rankscope.train.starts`. At the published start a network
            forecasts nothing but the level for many thousands of steps, which short runs cannot afford.
    """

    d_model: int = 128
    d_kv: int = 32
    d_ff: int = 512
    num_layers: int = 4
    num_decoder_layers: int = 4
    num_heads: int = 4
    n_tokens: int = 4096
    patch_size: int = 16
    dropout_rate: float = 0.0
    initializer_factor: float = 0.05
    feed_forward_proj: str = "relu"
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    layer_norm_epsilon: float = 1e-6
    tie_word_embeddings: bool = True
    start: str = "published"

    def __post_init__(self) -> None:
        if self.start not in STARTS:
            raise OptionError(unknown_choice("model.start", self.start, STARTS))
        if self.feed_forward_proj.removeprefix("gated-") not in ACTIVATIONS:
            known = [*ACTIVATIONS, *(f"gated-{name}" for name in ACTIVATIONS)]
            raise OptionError(unknown_choice("model.feed_forward_proj", self.feed_forward_proj, known))
        check_least(self, 1, SIZES, "model.")
        if not 0 <= self.dropout_rate < 1:
            raise OptionError(f"model.dropout_rate is {self.dropout_rate}: it must lie in [0, 1).")


@dataclass(frozen=True)
class EmbeddingStart:
    """Origin of the embedding (Chronos-T5: the vocabulary; Chronos-Bolt: the input patch block).

    Attributes:
        source: ``random`` draws it; ``inherit`` takes it from ``model`` (the paper's "reuse"); ``chebyshev``
            builds a vocabulary of exact rank ``rank`` (App. H, Chronos-T5 only).
        model: checkpoint to inherit from: a folder, a hub id or a bundled name.
        rank: algebraic rank of the Chebyshev vocabulary.
        frozen: whether training, weight decay included, leaves it as it is. The vocabulary of Chronos-T5 also reads
            the tokens out, unless ``model.tie_word_embeddings`` is false: frozen, it is so in both roles. (A Chebyshev
            vocabulary gets a head of its own in any case.)
        rate: learning rate of the embedding, as a multiple of the other weights'. A random vocabulary of 4,096 bins
            learns too slowly at theirs: a step moves only the bins that occur in its batch.
    """

    source: str = "random"
    model: str = ""
    rank: int = 0
    frozen: bool = False
    rate: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.rate < math.inf:
            raise OptionError(f"embedding.rate is {self.rate}: it must be above 0; frozen: true stops the embedding.")
        if self.frozen and self.rate != 1:
            raise OptionError(f"embedding.rate is {self.rate} with frozen: true, which leaves the embedding as it is.")
        if self.source not in EMBEDDING_SOURCES:
            raise OptionError(unknown_choice("embedding.source", self.source, EMBEDDING_SOURCES))
        if (self.source == "inherit") != bool(self.model):
            raise OptionError(
                f"embedding.model is {self.model!r} with source {self.source}: it names the checkpoint of source "
                "inherit, and of no other."
            )
        if (self.source == "chebyshev") != (self.rank > 0):
            raise OptionError(
                f"embedding.rank is {self.rank} with source {self.source}: it is the rank (at least 1) of source "
                "chebyshev, and of no other."
            )


@dataclass(frozen=True)
class Validation:
    """Scores during training.

    Attributes:
        every: steps between scores, 0 for none.
        suite: name or file of the suite.
        series: at most this many series of each task, 0 for all.
    """

    every: int = 0
    suite: str = "embedded"
    series: int = 20

    def __post_init__(self) -> None:
        check_least(self, 0, ("every", "series"), "validation.")


@dataclass(frozen=True)
class Snapshots:
    """Spectra logged during training (Fig. 13).

    Attributes:
        steps: after which optimiser steps; 0 is the start.
        every: besides, after every multiple of this many steps; 0 for none.
        roles: which matrices, as the ``--sites`` option of ``spectrum`` names them.
    """

    steps: tuple[int, ...] = ()
    every: int = 0
    roles: tuple[str, ...] = ("q", "k", "v", "o")

    def __post_init__(self) -> None:
        check_least(self, 0, ("steps", "every"), "spectra.")
        if set(self.roles) <= set("qkvo"):
            return
        from rankscope.families import SELECTORS  # loads torch, which processes that write shards do without

        for role in self.roles:
            if role not in SELECTORS:
                raise OptionError(unknown_choice("spectra.roles", role, SELECTORS))


@dataclass(frozen=True)
class PretrainConfig:
    """A pretraining run.

    Attributes:
        family: ``chronos-t5`` (quantised values, cross-entropy) or ``chronos-bolt`` (patches, quantile loss).
        model: size of the network.
        context: longest history, observations.
        horizon: observations to forecast.
        low_rank: ranks by design, None for the stock network.
        embedding: where the embedding comes from.
        weights: checkpoint whose weights the run begins with, in place of ``model.start``; empty for none.
        mixture: what the generated corpus is made of.
        shards: folder that ``rankscope synth`` wrote; its series replace the generated ones. Empty for none.
        bank_kernels: kernels in the KernelSynth bank.
        bank_draws: draws of each kernel.
        max_steps: optimiser steps.
        batch_size: series per step and device.
        accumulation: micro-batches per optimiser step.
        learning_rate: peak learning rate of AdamW.
        weight_decay: decoupled weight decay.
        beta2: second-moment decay of AdamW.
        max_grad_norm: gradients are clipped to this norm.
        warmup_steps: steps of linear warm-up.
        schedule: how the rate falls afterwards.
        decay_steps: for ``warmup_stable_decay``, steps of the final decay.
        save_steps: steps between snapshots from which a stopped run goes on.
        log_steps: steps between log lines.
        keep_steps: steps after which the model is kept for good, in the folder ``kept``; 0 is the start.
        precision: ``auto`` is bf16 where the device multiplies it natively (CUDA; on a CPU a product is timed), else
            fp32.
        compile: whether torch.compile fuses the network.
        gradient_checkpointing: whether activations are computed again in the backward pass to save memory.
        validation: scores during training.
        spectra: spectra logged during training.
        seed: the run is a function of it.
    """

    family: str = "chronos-t5"
    model: ModelShape = field(default_factory=ModelShape)
    low_rank: RankDesign | None = None
    embedding: EmbeddingStart = field(default_factory=EmbeddingStart)
    weights: str = ""
    context: int = 512
    horizon: int = 64
    mixture: Mixture = field(default_factory=Mixture)
    shards: str = ""
    bank_kernels: int = 500
    bank_draws: int = 16
    max_steps: int = 1000
    batch_size: int = 32
    accumulation: int = 1
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    beta2: float = 0.999
    max_grad_norm: float = 1.0
    warmup_steps: int = 200
    schedule: str = "linear"
    decay_steps: int = 0
    save_steps: int = 500
    log_steps: int = 50
    keep_steps: tuple[int, ...] = ()
    precision: str = "auto"
    compile: bool = False
    gradient_checkpointing: bool = False
    validation: Validation = field(default_factory=Validation)
    spectra: Snapshots = field(default_factory=Snapshots)
    seed: int = 0

    def __post_init__(self) -> None:
        from rankscope.families import FAMILIES  # loads torch

        trainable = [name for name, one in FAMILIES.items() if one.trainable]
        if self.family not in trainable:
            raise OptionError(unknown_choice("family", self.family, trainable))
        if self.schedule not in SCHEDULES:
            raise OptionError(unknown_choice("schedule", self.schedule, SCHEDULES))
        if self.precision not in PRECISIONS:
            raise OptionError(unknown_choice("precision", self.precision, PRECISIONS))
        check_least(self, 1, COUNTS)
        check_least(self, 0, (*NOT_NEGATIVE, "keep_steps"))
        if not 0 <= self.beta2 < 1:
            raise OptionError(f"beta2 is {self.beta2}: it must lie in [0, 1).")
        if self.decay_steps + self.warmup_steps > self.max_steps:
            raise OptionError(
                f"warmup_steps {self.warmup_steps} and decay_steps {self.decay_steps} do not fit into "
                f"max_steps {self.max_steps}: lower them or train longer."
            )
        if self.family_record.strategy == "continuous" and self.context % self.model.patch_size:
            raise OptionError(f"context {self.context} is no multiple of patch_size {self.model.patch_size}.")
        if self.weights and (self.low_rank is not None or self.embedding.source != "random"):
            raise OptionError("weights gives the whole network a start: low_rank and embedding.source have no place.")
        if self.embedding.source == "chebyshev" and self.family_record.vocabulary is None:
            raise OptionError("embedding.source chebyshev is a vocabulary, which only family chronos-t5 has.")
        if self.embedding.rank > self.model.d_model:
            raise OptionError(
                f"embedding.rank {self.embedding.rank} is above model.d_model {self.model.d_model}: lower the rank."
            )

    @property
    def family_record(self) -> Family:
        """The record of its family."""
        from rankscope.families import FAMILIES

        return FAMILIES[self.family]


def read_config(path: Path | str) -> PretrainConfig:
    """Read a run from YAML.

    Raises:
        OptionError: the file is missing, no YAML mapping, names an unknown field or has a value that makes no sense.
    """
    return codec.build(PretrainConfig, codec.load(path, "config", OptionError), where=f"config {path}")


def config_from_dict(values: Mapping[str, Any]) -> PretrainConfig:
    """Build a run from nested dicts.

    Raises:
        OptionError: a field is unknown, or a value is of another kind than the field or makes no sense.
    """
    return codec.build(PretrainConfig, values)
