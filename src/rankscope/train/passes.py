"""Fast CPU passes of Chronos-T5, Chronos-Bolt and Chronos-2 for training, using `rankscope.train.sublayers`.

Compressed models have them too, as long as their matrices are dense: narrower heads, feed-forward layers and residual
streams.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rankscope.train.sublayers import CrossAttention, FeedForward, Norm, SelfAttention, TokenLoss

States = Float[Tensor, "series tokens d_model"]
Weights = tuple[Tensor, Tensor, Tensor, Tensor]
"""Of queries, keys, values and outputs."""
NO_KEY = -1e9
"""Added to the score of a missing patch of a group: of a token that all members miss, weights stay defined."""
NETWORKS = (
    "T5ForConditionalGeneration", "ChronosBoltModelForForecasting", "Chronos2Model",
    "LowRankT5ForConditionalGeneration", "LowRankBoltModel",
)  # fmt: skip
"""Classes whose stacks are computed here."""


def has_fast_pass(model: Any) -> bool:
    """Return whether `fast_stacks` supports the model, on a CPU.

    That is, ReLU without dropout, dense matrices, and no gradient checkpointing.
    """
    return (
        type(model).__name__ in NETWORKS
        and model.device.type == "cpu"
        and model.config.feed_forward_proj == "relu"
        and not getattr(model.encoder, "gradient_checkpointing", False)
        and not any(_drops(part) for part in model.modules())
        and all(_dense(stack) for stack in _stacks(model))
    )


def _stacks(model: Any) -> tuple[Any, ...]:
    return (model.encoder, model.decoder) if hasattr(model, "decoder") else (model.encoder,)


def _drops(part: nn.Module) -> bool:
    """Return whether a module drops numbers in training; T5's attention holds the rate as a number."""
    rate = part.p if isinstance(part, nn.Dropout) else getattr(part, "dropout", 0.0)
    return isinstance(rate, float) and rate > 0


def _dense(stack: nn.Module) -> bool:
    """Return whether no matrix of a stack is stored in two factors or in whole numbers."""
    return all(type(layer) is nn.Linear for layer in stack.modules() if hasattr(layer, "in_features"))


def fast_loss(model: Any, batch: Mapping[str, Tensor]) -> Float[Tensor, ""]:
    """Compute the training loss of a batch, in bfloat16 under ``torch.autocast``, else in float32.

    Args:
        model: model accepted by `has_fast_pass`.
        batch: output of the collators of `rankscope.train.stream`.
    """
    with fast_stacks(model):
        if "labels" not in batch:
            loss: Tensor = model(**batch).loss
            return loss
        return token_loss(model, batch)


def token_loss(model: Any, batch: Mapping[str, Tensor], teacher: Any = None, truth: float = 1.0) -> Float[Tensor, ""]:
    """`TokenLoss` of a Chronos-T5 inside `fast_stacks`, of it and of its teacher; their heads are dense."""
    with torch.no_grad():
        guide = None if teacher is None or truth == 1 else (_decoded(teacher, batch), teacher.lm_head.weight)
    labels = batch["labels"].flatten()
    return TokenLoss.apply(_decoded(model, batch), model.lm_head.weight, labels, _format(), guide, truth)  # type: ignore[no-any-return]


def _decoded(model: Any, batch: Mapping[str, Tensor]) -> Float[Tensor, "rows d_model"]:
    """Decoder states of a Chronos-T5 under teacher forcing, as its head reads them."""
    labels = batch["labels"]
    encoded = model.encoder(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])[0]
    given = labels.new_full(labels.shape, model.config.decoder_start_token_id)
    given[:, 1:] = labels[:, :-1].masked_fill(labels[:, :-1] < 0, model.config.pad_token_id)
    decoded: Tensor = model.decoder(
        input_ids=given, encoder_hidden_states=encoded, encoder_attention_mask=batch["attention_mask"]
    )[0]
    if getattr(model.config, "scale_decoder_outputs", model.config.tie_word_embeddings):
        decoded = decoded * model.config.d_model**-0.5
    return decoded.flatten(0, 1)


def _format() -> torch.dtype:
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32


@contextlib.contextmanager
def fast_stacks(model: Any) -> Iterator[None]:
    """Compute encoder and decoder of a model by the fast pass inside the block, whoever calls the model.

    They keep no cache and no attention weights, and compute in bfloat16 under ``torch.autocast``, else in float32.

    Args:
        model: model accepted by `has_fast_pass`.
    """
    stacks = _stacks(model)
    for stack in stacks:
        stack.forward = functools.partial(_run if len(stacks) > 1 else _run_grouped, stack)
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
    from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

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
            sizes = (series, own.n_heads, norm.variance_epsilon, dtype)
            carried = _carried(block.layer[0], x, dtype)
            x = SelfAttention.apply(x, carried, norm.weight, *_weights(own), bias, None, mask, *sizes)
            if encoder_hidden_states is not None:
                cross_attend = _cross_attend_once if tokens == 1 else _cross_attend
                x = cross_attend(block.layer[1], x, encoder_hidden_states, encoded_mask, dtype)
            norm, dense = block.layer[-1].layer_norm, block.layer[-1].DenseReluDense
            matrices = (norm.weight, dense.wi.weight, dense.wo.weight)
            x = FeedForward.apply(x, _carried(block.layer[-1], x, dtype), *matrices, norm.variance_epsilon, dtype)
        final = stack.final_layer_norm
        x = Norm.apply(x, final.weight, final.variance_epsilon)
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=x.view(series, tokens, -1))


def _carried(layer: Any, x: Float[Tensor, "rows _"], dtype: torch.dtype) -> Float[Tensor, "rows _"]:
    """Rows of the residual stream as they come out behind a sublayer that adds nothing."""
    skip = getattr(layer, "skip", None)
    return x if skip is None else (x.to(dtype) @ skip.weight.to(dtype).t()).float()


def _weights(own: Any) -> Weights:
    """Matrices of an attention, with rows of zeros where a head is narrower than the widest."""
    q, k, v, o = own.q.weight, own.k.weight, own.v.weight, own.o.weight
    if not hasattr(own, "layout"):  # no `HeadWidthAttention`
        return q, k, v, o
    return own.qk.spread_rows(q), own.qk.spread_rows(k), own.vo.spread_rows(v), own.vo.spread_rows(o.t()).t()


def _run_grouped(
    stack: Any,
    inputs_embeds: States,
    *,
    group_ids: Int[Tensor, " series"],
    attention_mask: Float[Tensor, "series tokens"],
    **_: Any,
) -> Any:
    """Run Chronos-2's encoder; a series alone in its group attends to nothing but itself, without any scores."""
    from chronos.chronos2.model import Chronos2EncoderOutput

    dtype = _format()
    with torch.autocast("cpu", enabled=False):
        series, tokens, width = inputs_embeds.shape
        groups, sizes = group_ids.unique(return_inverse=True, return_counts=True)[1:]
        company = sizes[groups]
        order = torch.argsort(torch.where(company == 1, -1, groups), stable=True)
        alone = min(int((company == 1).sum()), series - 1)  # one goes with the groups: they are never empty
        together = groups[order[alone:]]
        apart = torch.zeros(len(together), len(together)).masked_fill_(together[:, None] != together, -torch.inf)[None]
        mask = _padding_mask(attention_mask[order])
        members = None if mask is None else mask[alone:].t().clamp(min=NO_KEY)
        first = stack.block[0].layer[0].self_attention
        turns = torch.stack(first.rope_embed(inputs_embeds.float(), torch.arange(tokens)[None]))[:, 0]
        x = inputs_embeds.float()[order].reshape(-1, width)
        for block in stack.block:
            x = _attend(block.layer[0], x, None, turns, mask, series, dtype)
            lone, grouped = x[: alone * tokens], x[alone * tokens :].view(-1, tokens, width)
            by_time = grouped.transpose(0, 1).reshape(-1, width)
            by_time = _attend(block.layer[1], by_time, apart, None, members, tokens, dtype)
            grouped = by_time.view(tokens, -1, width).transpose(0, 1).reshape(-1, width)
            x = torch.cat([_pass_values(block.layer[1], lone, dtype), grouped])
            norm, mlp = block.layer[2].layer_norm, block.layer[2].mlp
            x = FeedForward.apply(x, x, norm.weight, mlp.wi.weight, mlp.wo.weight, norm.variance_epsilon, dtype)
        final = stack.final_layer_norm
        x = Norm.apply(x, final.weight, final.variance_epsilon)
        return Chronos2EncoderOutput(last_hidden_state=x.view(series, tokens, width)[order.argsort()])


def _attend(
    layer: Any,
    x: Tensor,
    bias: Tensor | None,
    turns: Tensor | None,
    mask: Tensor | None,
    batch: int,
    dtype: torch.dtype,
) -> Tensor:
    """Apply one of Chronos-2's attention layers within each of ``batch`` parts of the rows."""
    norm, own = layer.layer_norm, layer.self_attention
    sizes = (batch, own.n_heads, norm.variance_epsilon, dtype)
    return SelfAttention.apply(x, x, norm.weight, *_weights(own), bias, turns, mask, *sizes)  # type: ignore[no-any-return]


def _pass_values(layer: Any, x: Tensor, dtype: torch.dtype) -> Tensor:
    """Apply attention over a single key, whose weight is 1."""
    norm, own = layer.layer_norm, layer.self_attention
    normed = Norm.apply(x, norm.weight, norm.variance_epsilon).to(dtype)
    return x + normed @ own.v.weight.to(dtype).t() @ own.o.weight.to(dtype).t()


def _padding_mask(attention_mask: Tensor | None) -> Float[Tensor, "series tokens"] | None:
    """Return the additive padding mask, or None without padding."""
    if attention_mask is None:
        return None
    padding: Bool[Tensor, "series tokens"] = attention_mask == 0
    return torch.zeros(padding.shape).masked_fill_(padding, -torch.inf) if bool(padding.any()) else None


def _cross_attend(layer: Any, x: Tensor, encoded: States, mask: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Apply cross-attention for several tokens per series."""
    norm, cross = layer.layer_norm, layer.EncDecAttention
    flat, carried = encoded.flatten(0, 1), _carried(layer, x, dtype)
    sizes = (len(encoded), cross.n_heads, norm.variance_epsilon, dtype)
    return CrossAttention.apply(x, carried, flat, norm.weight, *_weights(cross), mask, *sizes)  # type: ignore[no-any-return]


def _cross_attend_once(layer: Any, x: Tensor, encoded: States, mask: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Apply cross-attention for one token per series without materialising keys and values: qᵀ(K e) = (Kᵀq)ᵀe."""
    cross, heads = layer.EncDecAttention, layer.EncDecAttention.n_heads
    seen = encoded.to(dtype)
    q, k, v, o = _weights(cross)

    def by_head(weight: Tensor) -> Tensor:
        return weight.to(dtype).unflatten(0, (heads, -1))

    normed = Norm.apply(x, layer.layer_norm.weight, layer.layer_norm.variance_epsilon).to(dtype)
    query = (normed @ q.to(dtype).t()).unflatten(-1, (heads, -1))
    asked = torch.bmm(query.transpose(0, 1), by_head(k)).transpose(0, 1)
    scores = torch.bmm(asked, seen.transpose(1, 2)).float()
    if mask is not None:
        scores = scores + mask[:, None, :]
    found = torch.bmm(torch.softmax(scores, dim=-1).to(dtype), seen)
    values = torch.bmm(found.transpose(0, 1), by_head(v).transpose(1, 2)).transpose(0, 1)
    return _carried(layer, x, dtype) + values.flatten(1) @ o.to(dtype).t()
