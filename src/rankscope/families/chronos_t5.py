"""Chronos-T5: a T5 over mean-scaled values in uniform bins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.errors import CheckpointError, unknown_choice
from rankscope.families import t5
from rankscope.families.layers import STACK_LAYERS, forecast_only, stack_blocks, teacher_forced
from rankscope.families.record import Config, Family, chronos_config, context_length, prediction_length
from rankscope.families.series import check_series

_TOKENS = tuple(
    f"chronos_config.{key}"
    for key in ("tokenizer_class", "tokenizer_kwargs", "n_tokens", "n_special_tokens", "use_eos_token")
)
"""Fields that say which value a row of the vocabulary stands for."""


def matches(config: Config) -> bool:
    """Return True if the config is a T5 with a chronos tokenizer."""
    inner = config.get("chronos_config")
    return config.get("model_type") == "t5" and isinstance(inner, dict) and "tokenizer_class" in inner


def tokenizer(config: Config) -> Any:
    """Make chronos' own tokenizer from the config.

    Raises:
        CheckpointError: the tokenizer is another than MeanScaleUniformBins, or its settings are incomplete.
    """
    import chronos

    inner = dict(chronos_config(config))
    known = ["MeanScaleUniformBins"]
    if inner.get("tokenizer_class") not in known:
        raise CheckpointError(unknown_choice("chronos_config.tokenizer_class", inner.get("tokenizer_class"), known))
    try:
        return chronos.ChronosConfig(**inner).create_tokenizer()
    except (AssertionError, TypeError) as error:
        raise CheckpointError(
            f"config.json: chronos_config does not describe a tokenizer ({error}); "
            f"use the config.json that was saved with the weights."
        ) from error


def model_inputs(module: Any, series: Tensor) -> dict[str, Any]:
    """Tokenise series (axes series, time) for one teacher-forced pass: the decoder reads the shifted context.

    Series longer than the model's context are cut to their last observations, as the pipeline does.
    """
    check_series(series)
    config = module.config
    tokens, mask, _ = tokenizer(config.to_dict()).context_input_transform(series.detach().float().cpu())
    tokens, mask = tokens.to(module.device), mask.to(module.device)
    return teacher_forced(tokens, mask, int(config.decoder_start_token_id or 0))


def embed(module: Any, series: Tensor) -> Float[Tensor, "tokens d_model"]:
    """Embed every observation of a corpus (axes series, time), without missing values and the end token."""
    inputs = model_inputs(module, series)
    tokens, observed = inputs["input_ids"], inputs["attention_mask"].bool()
    length = min(series.shape[1], int(module.config.chronos_config["context_length"]))
    with torch.no_grad():
        return module.get_input_embeddings()(tokens[:, :length][observed[:, :length]])


def forecast_inputs(module: Any, context: Tensor, horizon: int) -> dict[str, Any]:
    """Tokens of the histories, without what none of them reaches back to, which would be read as padding."""
    seen = (~context.isnan()).any(dim=0)
    context = context[:, int(seen.int().argmax()) :] if bool(seen.any()) else context[:, -1:]
    return forecast_only(model_inputs(module, context))


def target_tokens(module: Any, context: Tensor, future: Tensor) -> Tensor:
    """Bins of what did follow, at the scale of the histories."""
    bins = tokenizer(module.config.to_dict())
    _, _, scale = bins.context_input_transform(context.detach().float().cpu())
    tokens, _, _ = bins._input_transform(context=future.detach().float().cpu(), scale=scale)
    return tokens.to(module.device)


def number_line(module: Any, config: Config) -> tuple[Float[Tensor, " bins"], Float[Tensor, "bins d_model"]]:
    """Centre of every bin, and the embedded token that stands for it."""
    inner = chronos_config(config)
    limits, special = inner["tokenizer_kwargs"], int(inner["n_special_tokens"])
    centres = torch.linspace(limits["low_limit"], limits["high_limit"], int(inner["n_tokens"]) - special - 1)
    # token ``special`` is the bin below the lowest limit, which no centre falls into
    return centres, module.get_input_embeddings().weight.detach()[special + 1 : special + 1 + len(centres)]


FAMILY = Family(
    name="chronos-t5",
    title="Chronos-T5",
    strategy="quantisation",
    matches=matches,
    sites=t5.sites,
    expected_shapes=t5.expected_shapes,
    tied_shapes=t5.tied_shapes,
    build=t5.FAMILY.build,
    embed=embed,
    model_inputs=model_inputs,
    blocks=stack_blocks,
    vocabulary=t5.vocabulary,
    aliases=t5.ALIASES,
    published_patch=1,
    hub_ids=tuple(f"amazon/chronos-t5-{size}" for size in ("tiny", "mini", "small", "base", "large")),
    stand_in="bundled",
    answers="samples",
    decoding="tokens",
    context=context_length,
    horizon=prediction_length,
    forecast_inputs=forecast_inputs,
    target_tokens=target_tokens,
    number_line=number_line,
    low_rank=replace(t5.LOW_RANK, pipeline="ChronosPipeline"),
    depth=STACK_LAYERS,
    trainable=True,
    healable=True,
    embedding_fields=_TOKENS,
    answer_fields=(
        *_TOKENS,
        *(f"chronos_config.{key}" for key in ("pad_token_id", "eos_token_id", "prediction_length")),
        "vocab_size",
        "decoder_start_token_id",
    ),
    fast=True,
)
