"""Fast CPU training loss of stock Chronos-T5 and Chronos-Bolt, using `rankscope.train.sublayers`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from rankscope.train.sublayers import CrossAttention, FeedForward, Norm, SelfAttention, TokenLoss

States = Float[Tensor, "series tokens d_model"]


def has_fast_pass(model: Any) -> bool:
    """Return whether `fast_loss` supports the model: a stock network on a CPU.

    That is, ReLU without dropout, dense matrices, and no gradient checkpointing.
    """
    stack = getattr(model, "encoder", None)
    return (
        type(model).__name__ in ("T5ForConditionalGeneration", "ChronosBoltModelForForecasting")
        and model.device.type == "cpu"
        and model.config.feed_forward_proj == "relu"
        and model.config.dropout_rate == 0.0
        and not getattr(stack, "gradient_checkpointing", False)
    )


def fast_loss(model: Any, batch: Mapping[str, Tensor]) -> Float[Tensor, ""]:
    """Compute the training loss of a batch, in bfloat16 under ``torch.autocast``, else in float32.

    Args:
        model: model accepted by `has_fast_pass`.
        batch: output of the collators of `rankscope.train.stream`.
    """
    with _fast_stacks(model):
        if "labels" not in batch:
            loss: Tensor = model(**batch).loss
            return loss
        labels = batch["labels"]
        encoded = model.encoder(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])[0]
        given = labels.new_full(labels.shape, model.config.decoder_start_token_id)
        given[:, 1:] = labels[:, :-1].masked_fill(labels[:, :-1] < 0, model.config.pad_token_id)
        decoded = model.decoder(
            input_ids=given, encoder_hidden_states=encoded, encoder_attention_mask=batch["attention_mask"]
        )[0]
        if getattr(model.config, "scale_decoder_outputs", model.config.tie_word_embeddings):
            decoded = decoded * model.config.d_model**-0.5
        return TokenLoss.apply(decoded.flatten(0, 1), model.lm_head.weight, labels.flatten(), _format())  # type: ignore[no-any-return]


def _format() -> torch.dtype:
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32


@contextlib.contextmanager
def _fast_stacks(model: Any) -> Iterator[None]:
    stacks = (model.encoder, model.decoder)
    for stack in stacks:
        stack.forward = functools.partial(_run, stack)
    try:
        yield
    finally:
        for stack in stacks:
            del stack.forward


def _run(
    stack: Any,
    input_ids: Tensor | None = None,
    attention_mask: Tensor | None = None,
    inputs_embeds: Tensor | None = None,
    encoder_hidden_states: States | None = None,
    encoder_attention_mask: Tensor | None = None,
    **_: Any,
) -> Any:
    """Run a T5 stack."""
    from transformers.modeling_outputs import BaseModelOutput

    dtype = _format()
    with torch.autocast("cpu", enabled=False):
        states = stack.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        series, tokens, width = states.shape
        first = stack.block[0].layer[0].SelfAttention
        bias = first.compute_bias(tokens, tokens)[0]
        if stack.is_decoder:
            bias = bias.masked_fill(torch.ones(tokens, tokens, dtype=torch.bool).triu(1), -torch.inf)
        mask, encoded_mask = _padding_mask(attention_mask), _padding_mask(encoder_attention_mask)
        x = states.float().reshape(-1, width)
        for block in stack.block:
            norm, own = block.layer[0].layer_norm, block.layer[0].SelfAttention
            weights = (own.q.weight, own.k.weight, own.v.weight, own.o.weight)
            x = SelfAttention.apply(x, norm.weight, *weights, bias, mask, series, norm.variance_epsilon, dtype)
            if encoder_hidden_states is not None:
                cross_attend = _cross_attend_once if tokens == 1 else _cross_attend
                x = cross_attend(block.layer[1], x, encoder_hidden_states, encoded_mask, dtype)
            norm, dense = block.layer[-1].layer_norm, block.layer[-1].DenseReluDense
            x = FeedForward.apply(x, norm.weight, dense.wi.weight, dense.wo.weight, norm.variance_epsilon, dtype)
        final = stack.final_layer_norm
        x = Norm.apply(x, final.weight, final.variance_epsilon)
        return BaseModelOutput(last_hidden_state=x.view(series, tokens, width))


def _padding_mask(attention_mask: Tensor | None) -> Float[Tensor, "series tokens"] | None:
    """Return the additive padding mask, or None without padding."""
    if attention_mask is None:
        return None
    padding: Bool[Tensor, "series tokens"] = attention_mask == 0
    return torch.zeros(padding.shape).masked_fill_(padding, -torch.inf) if bool(padding.any()) else None


def _cross_attend(layer: Any, x: Tensor, encoded: States, mask: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Apply cross-attention for several tokens per series."""
    norm, cross = layer.layer_norm, layer.EncDecAttention
    weights = (cross.q.weight, cross.k.weight, cross.v.weight, cross.o.weight)
    flat = encoded.flatten(0, 1)
    sizes = (len(encoded), cross.n_heads, norm.variance_epsilon, dtype)
    return CrossAttention.apply(x, flat, norm.weight, *weights, mask, *sizes)  # type: ignore[no-any-return]


def _cross_attend_once(layer: Any, x: Tensor, encoded: States, mask: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Apply cross-attention for one token per series without materialising keys and values: qᵀ(K e) = (Kᵀq)ᵀe."""
    cross, heads = layer.EncDecAttention, layer.EncDecAttention.n_heads
    seen = encoded.to(dtype)

    def by_head(weight: nn.Parameter) -> Tensor:
        return weight.to(dtype).unflatten(0, (heads, -1))

    normed = Norm.apply(x, layer.layer_norm.weight, layer.layer_norm.variance_epsilon).to(dtype)
    query = (normed @ cross.q.weight.to(dtype).t()).unflatten(-1, (heads, -1))
    asked = torch.bmm(query.transpose(0, 1), by_head(cross.k.weight)).transpose(0, 1)
    scores = torch.bmm(asked, seen.transpose(1, 2)).float()
    if mask is not None:
        scores = scores + mask[:, None, :]
    found = torch.bmm(torch.softmax(scores, dim=-1).to(dtype), seen)
    values = torch.bmm(found.transpose(0, 1), by_head(cross.v.weight).transpose(1, 2)).transpose(0, 1)
    return x + values.flatten(1) @ cross.o.weight.to(dtype).t()
