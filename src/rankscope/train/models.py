"""Build untrained Chronos networks in the published formats, and initialise their embedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.checkpoints import Checkpoint, describe, open_checkpoint
from rankscope.errors import OptionError
from rankscope.families import config_field
from rankscope.numerics.embedding import chebyshev_embedding
from rankscope.numerics.factored import FactoredMatrix
from rankscope.train.config import EmbeddingStart, PretrainConfig
from rankscope.train.rank_layouts import by_design
from rankscope.train.starts import start_broadly, start_ordered, start_recent, take_encoder, take_weights

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, T5Config


QUANTILES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
FINE_QUANTILES = (0.01, *(round(0.05 * step, 2) for step in range(1, 20)), 0.99)
"""Quantiles of Chronos-2."""
LOW_LIMIT, HIGH_LIMIT = -15.0, 15.0
PAD, EOS, SPECIAL_TOKENS = 0, 1, 2
STARTERS = {"broad": start_broadly, "recency": start_recent, "ordered": start_ordered}
"""``model.start`` → initialisation function."""
_DEFAULTS = {"feed_forward_proj": "relu"}
"""Values of fields that a config may leave out."""
HEAD = "lm_head.weight"


def new_model(config: PretrainConfig) -> PreTrainedModel:
    """Build the untrained network of a run; the caller seeds torch first.

    Args:
        config: the run.

    Returns:
        A transformers model whose ``save_pretrained`` folder ``BaseChronosPipeline.from_pretrained`` reads.

    Raises:
        OptionError: r(i) does not fit the network, or the weights or the embedding to begin with do not.
        CheckpointError: the checkpoint to inherit from cannot be read.
    """
    model: Any = _BUILDERS[config.family](config)
    if (
        config.model.start in STARTERS and not model.shared.weight.is_meta
    ):  # meta networks are only used to count parameters
        STARTERS[config.model.start](model)
    if not config.model.tie_word_embeddings and config.family_record.vocabulary is not None:
        untie_head(model)
    if config.weights and not model.shared.weight.is_meta:
        take_weights(model, config)
    elif config.teacher.model and not model.shared.weight.is_meta:
        take_encoder(model, config)
    if config.embedding.source == "chebyshev":
        start_from_chebyshev(model, config.embedding, config.seed)
    elif config.embedding.source == "inherit":
        inherit_embedding(model, config)
    if config.embedding.frozen:
        freeze_embedding(model)
    if config.trainable:
        train_only(model, config.trainable)
    return model


def train_only(model: nn.Module, parts: Sequence[str]) -> None:
    """Leave all weights as they are but those whose names have one of the parts.

    Raises:
        OptionError: a part is in no name.
    """
    names = [name for name, _ in model.named_parameters()]
    for part in parts:
        if not any(part in name for name in names):
            raise OptionError(f"trainable has {part!r}, which is in no weight's name; one is {names[-1]}.")
    for name, weight in model.named_parameters():
        weight.requires_grad_(weight.requires_grad and any(part in name for part in parts))


def chronos_config(config: PretrainConfig) -> dict[str, Any]:
    """Return the ``chronos_config`` entry of config.json, field for field as the published checkpoints have it."""
    if config.family_record.answers == "quantiles":
        patch = config.model.patch_size
        sizes = {"context_length": config.context, "input_patch_size": patch, "input_patch_stride": patch}
        if not config.family_record.grouped:
            settings = {"prediction_length": config.horizon, "quantiles": list(QUANTILES)}
        else:
            settings = {
                "output_patch_size": patch,
                "max_output_patches": config.horizon // patch,
                "quantiles": list(FINE_QUANTILES),
                "time_encoding_scale": config.context,
                "use_arcsinh": True,
            }
        return {**sizes, **settings, "use_reg_token": True}
    return {
        "tokenizer_class": "MeanScaleUniformBins",
        "tokenizer_kwargs": {"low_limit": LOW_LIMIT, "high_limit": HIGH_LIMIT},
        "n_tokens": config.model.n_tokens,
        "n_special_tokens": SPECIAL_TOKENS,
        "pad_token_id": PAD,
        "eos_token_id": EOS,
        "use_eos_token": True,
        "model_type": "seq2seq",
        "context_length": config.context,
        "prediction_length": config.horizon,
        "num_samples": 20,
        "temperature": 1.0,
        "top_k": 50,
        "top_p": 1.0,
    }


def _t5_config(config: PretrainConfig, vocabulary: int) -> T5Config:
    from transformers import T5Config

    shape = config.model
    # A dict, because the signature of T5Config differs between transformers 4 and 5.
    settings: dict[str, Any] = {
        "vocab_size": vocabulary,
        "d_model": shape.d_model,
        "d_kv": shape.d_kv,
        "d_ff": shape.d_ff,
        "num_layers": shape.num_layers,
        "num_decoder_layers": shape.num_decoder_layers,
        "num_heads": shape.num_heads,
        "dropout_rate": shape.dropout_rate,
        "initializer_factor": shape.initializer_factor,
        "feed_forward_proj": shape.feed_forward_proj,
        "relative_attention_num_buckets": shape.relative_attention_num_buckets,
        "relative_attention_max_distance": shape.relative_attention_max_distance,
        "layer_norm_epsilon": shape.layer_norm_epsilon,
        "decoder_start_token_id": PAD,
        "pad_token_id": PAD,
        "eos_token_id": EOS,
        "tie_word_embeddings": True,
    }
    return T5Config(**settings)


def _chronos_t5(config: PretrainConfig) -> PreTrainedModel:
    from transformers import T5ForConditionalGeneration

    t5 = _t5_config(config, config.model.n_tokens)
    t5.chronos_config = chronos_config(config)
    if config.low_rank is None:
        return T5ForConditionalGeneration(t5)
    from rankscope.lowrank import LowRankT5Config, LowRankT5ForConditionalGeneration

    return LowRankT5ForConditionalGeneration(LowRankT5Config.from_dict(_by_design(t5, config)))


def _chronos_bolt(config: PretrainConfig) -> PreTrainedModel:
    from chronos.chronos_bolt import ChronosBoltModelForForecasting

    t5 = _t5_config(config, 2)
    t5.chronos_config = chronos_config(config)
    t5.chronos_pipeline_class = "ChronosBoltPipeline"
    if config.low_rank is None:
        return ChronosBoltModelForForecasting(t5)
    from rankscope.lowrank import LowRankBoltConfig, LowRankBoltModel

    return LowRankBoltModel(LowRankBoltConfig.from_dict(_by_design(t5, config)))


def _chronos_2(config: PretrainConfig) -> PreTrainedModel:
    from chronos.chronos2.config import Chronos2CoreConfig
    from chronos.chronos2.model import Chronos2Model

    shape = config.model
    if shape.feed_forward_proj.startswith("gated-"):
        raise OptionError(f"model.feed_forward_proj is {shape.feed_forward_proj}: Chronos-2 has no gated layers.")
    patches = chronos_config(config)
    if config.weights:  # times mean there what they mean to the weights
        scale = config_field(describe(config.weights).config, "chronos_config.time_encoding_scale")
        patches["time_encoding_scale"] = scale or config.context
    names = (
        "d_model", "d_kv", "d_ff", "num_layers", "num_heads", "dropout_rate", "layer_norm_epsilon",
        "initializer_factor", "feed_forward_proj",
    )  # fmt: skip
    core = Chronos2CoreConfig(
        **{name: getattr(shape, name) for name in names},
        chronos_config=patches,
        chronos_pipeline_class="Chronos2Pipeline",
    )
    stock = Chronos2Model(core)
    stock.apply(stock._init_weights)  # transformers 5 leaves out modules without parameters of their own
    if config.low_rank is None:
        return stock
    from rankscope.lowrank import LowRankChronos2Config, LowRankChronos2Model

    model = LowRankChronos2Model(LowRankChronos2Config.from_dict(_by_design(core, config)))
    model.load_state_dict(stock.state_dict(), strict=False)  # all but the factors
    return model


def _by_design(stock: PretrainedConfig, config: PretrainConfig) -> dict[str, Any]:
    assert config.low_rank is not None
    return by_design(stock.to_dict(), config.low_rank)


_BUILDERS = {"chronos-t5": _chronos_t5, "chronos-bolt": _chronos_bolt, "chronos-2": _chronos_2}
"""Family → constructor."""


def embedding_parameters(model: Any) -> dict[str, nn.Parameter]:
    """Parameters that embed the input: the vocabulary (Bolt: the special tokens), and Bolt's input patch block."""
    found = {"shared.weight": model.shared.weight}
    block = getattr(model, "input_patch_embedding", nn.Module())
    return found | {f"input_patch_embedding.{name}": weight for name, weight in block.named_parameters()}


def freeze_embedding(model: Any) -> None:
    """Freeze the embedding; it is excluded from the optimiser and weight decay.

    For a Chronos-T5 with a tied head this also freezes the output projection.
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


def chebyshev_vocabulary(
    chronos_config: dict[str, Any], d_model: int, rank: int, seed: int
) -> Float[Tensor, "tokens d_model"]:
    """Embed the centre of every bin by `rankscope.numerics.embedding.chebyshev_embedding`.

    Which id holds which centre is chronos' own tokenizer's to say: the id after the special tokens is used by no
    value and decodes to the lowest bin, so it gets that bin's row. The special tokens (padding, which also starts
    the decoder, and end of sequence) hold no number: their rows are zero, which adds nothing to the rank. At rank 1
    zero is also the row of the bin at 0, as a line has no place for a token without a value.

    Args:
        chronos_config: the ``chronos_config`` entry of config.json, with MeanScaleUniformBins as its tokenizer.
        d_model: width of the embedding.
        rank: algebraic rank of the table.
        seed: the subspace is a function of it.

    Returns:
        float64 table (tokens, d_model) of algebraic rank ``rank``.

    Raises:
        OptionError: the rank does not fit into ``d_model`` or needs more bins.
    """
    from chronos import ChronosConfig

    bins: Any = ChronosConfig(**chronos_config).create_tokenizer()
    special, tokens = bins.config.n_special_tokens, bins.config.n_tokens
    limit = float(bins.centers.abs().max())
    rows = chebyshev_embedding(bins.centers, d_model, rank, limit=limit, seed=seed)
    ids = torch.arange(special, tokens)
    table = torch.zeros(tokens, d_model, dtype=rows.dtype)
    table[ids] = rows[(ids - special - 1).clamp(0, len(rows) - 1)]
    return table


def start_from_chebyshev(model: Any, embedding: EmbeddingStart, seed: int) -> None:
    """Give a fresh Chronos-T5 the Chebyshev vocabulary that ``embedding`` asks for, and a head of its own."""
    with torch.device("cpu"):  # numbers, also where the model is a sketch without any (device meta)
        table = chebyshev_vocabulary(model.config.chronos_config, model.config.d_model, embedding.rank, seed)
    set_vocabulary(model, table, frozen=embedding.frozen)


@torch.no_grad()
def set_vocabulary(model: Any, table: Float[Tensor, "tokens d_model"], *, frozen: bool) -> None:
    """Put a table in place of the vocabulary of a T5, give the model a head of its own, and freeze the table.

    T5 reads tokens out with the vocabulary itself. A frozen table of rank k would leave k directions to tell all
    tokens apart, and training could not improve them, so the head is untied (`untie_head`) and trained.

    Args:
        model: a ``T5ForConditionalGeneration``.
        table: the vocabulary (tokens, d_model).
        frozen: whether training leaves the table as it is.
    """
    untie_head(model)
    weight = model.get_input_embeddings().weight
    weight.copy_(table)
    weight.requires_grad_(not frozen)


@torch.no_grad()
def untie_head(model: Any) -> None:
    """Give a T5 an output head of its own, drawn as transformers draws untied heads.

    The saved config says ``tie_word_embeddings: false``. transformers 4 and 5 then both keep the stored head and, as
    in T5 v1.1, no longer scale the decoder's output by d_model^−½; training here goes by the same rule.
    """
    embedding = model.get_input_embeddings().weight
    head = torch.empty_like(embedding).normal_(std=model.config.initializer_factor)
    model.lm_head.weight = nn.Parameter(head)
    tied = getattr(model, "all_tied_weights_keys", None)  # transformers 5
    if tied is not None:
        tied.pop(HEAD, None)
    model.config.tie_word_embeddings = False
    model.config.scale_decoder_outputs = False
