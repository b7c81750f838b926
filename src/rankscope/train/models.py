"""Fresh networks in the published formats of Chronos-T5 and Chronos-Bolt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankscope.train.config import PretrainConfig
from rankscope.train.inherit import freeze_embedding, inherit_embedding
from rankscope.train.rank_schedule import by_design
from rankscope.train.starts import start_broadly, start_ordered, start_recent
from rankscope.train.vocabulary import start_from_chebyshev, untie_head
from rankscope.train.warm import take_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel, T5Config

QUANTILES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
LOW_LIMIT, HIGH_LIMIT = -15.0, 15.0
PAD, EOS, SPECIAL_TOKENS = 0, 1, 2
STARTERS = {"broad": start_broadly, "recency": start_recent, "ordered": start_ordered}
"""``model.start`` → what rewrites the weights that the stock model drew."""


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
    if config.model.start in STARTERS and not model.shared.weight.is_meta:  # a meta network only counts numbers
        STARTERS[config.model.start](model)
    if not config.model.tie_word_embeddings and config.family_record.vocabulary is not None:
        untie_head(model)
    if config.weights and not model.shared.weight.is_meta:
        take_weights(model, config)
    if config.embedding.source == "chebyshev":
        start_from_chebyshev(model, config.embedding, config.seed)
    elif config.embedding.source == "inherit":
        inherit_embedding(model, config)
    if config.embedding.frozen:
        freeze_embedding(model)
    return model


def chronos_config(config: PretrainConfig) -> dict[str, Any]:
    """Return the ``chronos_config`` entry of config.json, field for field as the published checkpoints have it."""
    if config.family_record.answers == "quantiles":
        return {
            "context_length": config.context,
            "input_patch_size": config.model.patch_size,
            "input_patch_stride": config.model.patch_size,
            "prediction_length": config.horizon,
            "quantiles": list(QUANTILES),
            "use_reg_token": True,
        }
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


def _by_design(t5: T5Config, config: PretrainConfig) -> dict[str, Any]:
    assert config.low_rank is not None
    return by_design(t5.to_dict(), config.low_rank)


_BUILDERS = {"chronos-t5": _chronos_t5, "chronos-bolt": _chronos_bolt}
"""Family → what makes a fresh network of it."""
