"""T5 for text: v1.0 (ReLU, tied head) and v1.1 (gated, untied head)."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.errors import DataError
from rankscope.families.layers import (
    STACK_LAYERS,
    forecast_only,
    has_decoder,
    stack_blocks,
    stack_shapes,
    stack_sites,
    teacher_forced,
)
from rankscope.families.loading import whole_model
from rankscope.families.record import Config, Family, LowRank, Shapes, positive
from rankscope.families.sites import Site
from rankscope.families.stream import sliced_shapes, sliced_ties

ALIASES = {"shared.weight": ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")}


def matches(config: Config) -> bool:
    """Return True if the config is a T5 without a chronos part."""
    return config.get("model_type") == "t5" and "chronos_config" not in config


def sites(config: Config) -> tuple[Site, ...]:
    """Embedding, then both stacks."""
    return (Site("shared.weight", "encoder", None, "embedding"), *stack_sites(config))


def expected_shapes(config: Config) -> Shapes:
    """Every tensor of the model; the head only where it is untied."""
    table = _table(config)
    shapes = {"shared.weight": table, **stack_shapes(config)}
    if has_decoder(config) and config.get("tie_word_embeddings") is False:
        shapes["lm_head.weight"] = table
    return sliced_shapes(shapes, config)


def tied_shapes(config: Config) -> Shapes:
    """Copies of the embedding under the names of the stacks and of the head."""
    table = _table(config)
    shapes: Shapes = {"encoder.embed_tokens.weight": table}
    if has_decoder(config):
        shapes["decoder.embed_tokens.weight"] = table
        if config.get("tie_word_embeddings") is not False:
            shapes["lm_head.weight"] = table
    return sliced_ties(shapes, config)


def _table(config: Config) -> tuple[int, int]:
    return positive(config, "vocab_size"), positive(config, "d_model")


def model_inputs(module: Any, series: Tensor) -> dict[str, Any]:
    """Token ids (axes texts, tokens) for one pass in which the decoder reads the shifted text.

    Raises:
        DataError: the values are no token ids of the model.
    """
    tokens = token_ids(module, series)
    config = module.config
    pad = int(config.pad_token_id or 0)
    start = int(getattr(config, "decoder_start_token_id", None) or pad)
    return teacher_forced(tokens, (tokens != pad).long(), start)


def embed(module: Any, series: Tensor) -> Float[Tensor, "tokens d_model"]:
    """Look up every token id (axes texts, tokens) of a corpus; padding is left out."""
    tokens, pad = token_ids(module, series), module.config.pad_token_id
    with torch.no_grad():
        return module.get_input_embeddings()(tokens.flatten() if pad is None else tokens[tokens != pad])


def token_ids(module: Any, series: Tensor) -> Tensor:
    """Check that a corpus holds token ids (axes texts, tokens) of the model.

    Raises:
        DataError: it does not.
    """
    size = int(module.config.vocab_size)
    whole = not series.is_floating_point() or bool((series == series.round()).all())
    if series.ndim != 2 or series.numel() == 0 or not whole:
        raise DataError(
            "a text model reads whole token ids with axes (texts, tokens), found shape "
            f"{tuple(series.shape)} of {series.dtype}; tokenise the text first."
        )
    low, high = series.aminmax()
    if low < 0 or high >= size:
        raise DataError(f"token ids must lie in 0…{size - 1}, found {low:g}…{high:g}; use the model's own tokenizer.")
    return series.long().to(module.device)


def vocabulary(module: Any) -> Float[Tensor, "vocabulary d_model"]:
    """The embedding table, special tokens included: the transpose of the paper's Ξ."""
    return module.get_input_embeddings().weight.detach()


LOW_RANK = LowRank("rankscope-t5", "LowRankT5ForConditionalGeneration")

FAMILY = Family(
    name="t5",
    title="T5",
    strategy="text",
    matches=matches,
    sites=sites,
    expected_shapes=expected_shapes,
    tied_shapes=tied_shapes,
    build=whole_model("transformers", "T5ForConditionalGeneration"),
    embed=embed,
    model_inputs=model_inputs,
    blocks=stack_blocks,
    vocabulary=vocabulary,
    aliases=ALIASES,
    modality="text",
    published_patch=1,
    hub_ids=("google-t5/t5-small", "google-t5/t5-base", "google-t5/t5-large"),
    stand_in="bundled-t5-text",
    decoding="tokens",
    forecast_inputs=lambda module, context, horizon: forecast_only(model_inputs(module, context)),
    target_tokens=lambda module, context, future: future.long().to(module.device),
    low_rank=LOW_RANK,
    depth=STACK_LAYERS,
    proxy=True,
)
