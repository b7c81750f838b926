"""Configuration of a pretraining run, as a dataclass and as YAML."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankscope.choices import LARGEST_SEED, PRECISIONS
from rankscope.errors import DataError, OptionError, check_least, unknown_choice
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
        relative_attention_num_buckets: buckets of the relative position bias.
        relative_attention_max_distance: distance in tokens beyond which all positions share a bucket.
        layer_norm_epsilon: epsilon of the layer norms.
        tie_word_embeddings: tie the output head of Chronos-T5 to its vocabulary.
        start: weight initialisation, see `rankscope.train.starts`. ``published`` keeps the stock initialisation.
            ``broad`` gives position biases a non-zero variance, the vocabulary of Chronos-T5 unit variance, and the
            Linear layers of Chronos-Bolt's patch blocks fan-in scaling. ``recency`` additionally makes each head attend
            at its own distance, with full-scale values and outputs, and ``ordered`` initialises the vocabulary in bin
            order. With the published initialisation a network forecasts only the level for many thousands of steps,
            which is too slow for short runs.
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
        check_least(self, 3, ("n_tokens",), "model.")  # two special ones, and a bin
        check_least(self, 4, ("relative_attention_num_buckets",), "model.")  # halves of halves
        check_least(self, self.relative_attention_num_buckets // 4 + 1, ("relative_attention_max_distance",), "model.")
        check_least(self, 0, ("initializer_factor", "layer_norm_epsilon"), "model.")
        if self.initializer_factor == 0 and self.start in ("recency", "ordered"):
            raise OptionError(f"model.initializer_factor is 0: start {self.start} scales it up, give one above 0.")
        if not 0 <= self.dropout_rate < 1:
            raise OptionError(f"model.dropout_rate is {self.dropout_rate}: it must lie in [0, 1).")


@dataclass(frozen=True)
class EmbeddingStart:
    """Origin of the embedding (Chronos-T5: the vocabulary; Chronos-Bolt: the input patch block).

    Attributes:
        source: ``random``; ``inherit`` copies it from ``model`` (the paper's "reuse"); ``chebyshev``
            builds a vocabulary of exact rank ``rank`` (App. H, Chronos-T5 only).
        model: checkpoint to inherit from: a folder, a hub id or a bundled name.
        rank: algebraic rank of the Chebyshev vocabulary.
        frozen: exclude the embedding from training and weight decay. For Chronos-T5 this includes the tied output
            head, unless ``model.tie_word_embeddings`` is false. (A Chebyshev vocabulary always gets its own head.)
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
class Teacher:
    """Forecasting model that a Chronos-Bolt learns from, see `rankscope.train.teaching`.

    Attributes:
        model: the teacher: a folder, a hub id or a bundled name; empty for none. Of any family that forecasts.
        series: generated series that it answers, once, before training.
        paths: sample paths per series, of a teacher that samples.
        share: share of each batch that is taken from those series; the others have the true future values alone.
        truth: share of the loss that looks at the true future values; the rest is the distance to the teacher.
        encoder: initialise the encoder with the teacher's, which has the same shape.
    """

    model: str = ""
    series: int = 2048
    paths: int = 100
    share: float = 0.25
    truth: float = 0.5
    encoder: bool = True

    def __post_init__(self) -> None:
        check_least(self, 1, ("series", "paths"), "teacher.")
        if not 0 < self.share <= 1:
            raise OptionError(f"teacher.share is {self.share}: it must lie in (0, 1].")
        if not 0 <= self.truth <= 1:
            raise OptionError(f"teacher.truth is {self.truth}: it is a share, from 0 to 1.")

    @property
    def asked(self) -> bool:
        """True if there is a teacher whose answers count."""
        return bool(self.model) and self.truth < 1


@dataclass(frozen=True)
class Validation:
    """Scores during training.

    Attributes:
        every: steps between validations, 0 for none.
        suite: name or file of the suite.
        series: maximum series per task, 0 for all.
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
        steps: optimiser steps to log after; 0 is the initial state.
        every: additionally log every this many steps; 0 for none.
        roles: matrices to log, as in ``spectrum --sites``.
    """

    steps: tuple[int, ...] = ()
    every: int = 0
    roles: tuple[str, ...] = ("q", "k", "v", "o")

    def __post_init__(self) -> None:
        check_least(self, 0, ("steps", "every"), "spectra.")
        if set(self.roles) <= set("qkvo"):
            return
        from rankscope.families import SELECTORS  # imports torch, which processes that write shards avoid

        for role in self.roles:
            if role not in SELECTORS:
                raise OptionError(unknown_choice("spectra.roles", role, SELECTORS))


@dataclass(frozen=True)
class PretrainConfig:
    """A pretraining run.

    Attributes:
        family: ``chronos-t5`` (quantised values, cross-entropy), ``chronos-bolt`` (patches, quantile loss) or
            ``chronos-2`` (patches, quantile loss, groups of series).
        model: size of the network.
        context: maximum context length.
        horizon: forecast horizon.
        low_rank: low-rank design, None for the stock network.
        embedding: initialisation of the embedding.
        weights: checkpoint to initialise from, instead of ``model.start``; empty for none.
        trainable: parts of the names of the weights that are trained, e.g. ``layer.1.`` for the group attention of
            Chronos-2, the others staying as they are; empty for all.
        teacher: model to distil into a Chronos-Bolt.
        mixture: composition of the synthetic corpus.
        shards: folder written by ``rankscope synth``, used instead of generating series; empty for none. Of the
            mixture only short_share, shortest and missing_share apply then.
        bank_kernels: kernels in the KernelSynth bank.
        bank_draws: draws of each kernel.
        max_steps: optimiser steps.
        batch_size: series per step and device.
        accumulation: micro-batches per optimiser step.
        learning_rate: peak learning rate of AdamW.
        weight_decay: decoupled weight decay.
        beta2: second-moment decay of AdamW.
        max_grad_norm: gradient-clipping norm.
        warmup_steps: steps of linear warm-up.
        schedule: learning-rate schedule after the warm-up.
        decay_steps: for ``warmup_stable_decay``, steps of the final decay.
        save_steps: steps between snapshots for resuming.
        log_steps: steps between log lines.
        keep_steps: steps after which to save a permanent checkpoint in the folder ``kept``; 0 is the initial state.
        precision: ``auto`` is bf16 if the device supports it natively (on a CPU determined by timing a matmul), else
            fp32.
        compile: use torch.compile.
        gradient_checkpointing: recompute activations in the backward pass to save memory.
        validation: validation during training.
        spectra: spectra to log during training.
        seed: random seed.
    """

    family: str = "chronos-t5"
    model: ModelShape = field(default_factory=ModelShape)
    low_rank: RankDesign | None = None
    embedding: EmbeddingStart = field(default_factory=EmbeddingStart)
    weights: str = ""
    trainable: tuple[str, ...] = ()
    teacher: Teacher = field(default_factory=Teacher)
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
        if self.seed > LARGEST_SEED:
            raise OptionError(f"seed is {self.seed}: it must be at most {LARGEST_SEED}.")
        if not 0 <= self.beta2 < 1:
            raise OptionError(f"beta2 is {self.beta2}: it must lie in [0, 1).")
        if self.decay_steps + self.warmup_steps > self.max_steps:
            raise OptionError(
                f"warmup_steps {self.warmup_steps} and decay_steps {self.decay_steps} do not fit into "
                f"max_steps {self.max_steps}: lower them or train longer."
            )
        if self.family_record.strategy == "continuous" and self.context % self.model.patch_size:
            raise OptionError(f"context {self.context} is not a multiple of patch_size {self.model.patch_size}.")
        if self.family_record.grouped and self.horizon % self.model.patch_size:
            raise OptionError(f"horizon {self.horizon} is not a multiple of patch_size {self.model.patch_size}.")
        exact = self.model.relative_attention_num_buckets // 2  # distances that a decoder tells apart, one a bucket
        if self.family_record.vocabulary is not None and self.horizon >= exact:
            check_least(self.model, exact + 1, ("relative_attention_max_distance",), "model.")
        if self.family_record.rotary and self.model.d_kv % 2:
            raise OptionError(f"model.d_kv is {self.model.d_kv}: rotary positions turn pairs, give an even one.")
        if self.gradient_checkpointing and self.family_record.grouped:
            raise OptionError(
                f"gradient_checkpointing is true: chronos-forecasting's {self.family_record.title} has none."
            )
        if self.mixture.group_share and not self.family_record.grouped:
            raise OptionError(
                f"mixture.group_share is {self.mixture.group_share}: {self.family_record.title} reads every series "
                "alone: give family chronos-2, or leave it out."
            )
        if self.weights and (self.low_rank is not None or self.embedding.source != "random"):
            raise OptionError("weights gives the whole network a start: low_rank and embedding.source have no place.")
        if self.teacher.model and self.family != "chronos-bolt":
            raise OptionError(f"teacher is given, family is {self.family}: a student is a chronos-bolt.")
        if self.teacher.model and self.weights and self.teacher.encoder:
            raise OptionError("weights and teacher both start the encoder: set teacher.encoder: false.")
        if self.teacher.model and (self.shards or self.low_rank is not None):
            raise OptionError("teacher answers generated series, for a stock network: leave out shards and low_rank.")
        if self.embedding.source == "chebyshev" and self.family_record.vocabulary is None:
            raise OptionError("embedding.source chebyshev is a vocabulary, which only family chronos-t5 has.")
        if self.embedding.rank > self.model.d_model:
            raise OptionError(
                f"embedding.rank {self.embedding.rank} is above model.d_model {self.model.d_model}: lower the rank."
            )

    @property
    def family_record(self) -> Family:
        """Family record."""
        from rankscope.families import FAMILIES

        return FAMILIES[self.family]


def read_config(path: Path | str) -> PretrainConfig:
    """Read a run from YAML.

    Raises:
        OptionError: the file is missing or not a YAML mapping, or a field is unknown or invalid.
    """
    return codec.build(PretrainConfig, codec.load(path, "config", OptionError), where=f"config {path}")


def config_from_dict(values: Mapping[str, Any]) -> PretrainConfig:
    """Build a run from nested dicts.

    Raises:
        OptionError: a field is unknown, or a value has the wrong type or is invalid.
    """
    return codec.build(PretrainConfig, values)


def recorded_config(file: Path) -> PretrainConfig:
    """Build the run that a record of training, e.g. ``pretrain.json``, has as its ``config``.

    Raises:
        DataError: the file is damaged, or a field is unknown or invalid.
    """
    found: PretrainConfig = codec.build(PretrainConfig, codec.part(file, "config"), "config", str(file), DataError)
    return found
