"""Training losses of the three Chronos layouts as plain functions of tensors, for torch.compile.

The networks are chronos-forecasting's and transformers' own; only the way through their stacks is written here, without
the control flow that a compiler stumbles over. Softmax and norms stay in float32 under autocast.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from generation import UNIT
from torch import Tensor, nn

from rankscope.train.stream import FARTHEST

HIDDEN = -1e9
"""Added to the score of a key that is not there."""
PADDED = 8
"""Chronos-T5's token counts are padded to a multiple of this."""
Loss = Callable[[Mapping[str, Tensor]], Tensor]


def loss_of(model: Any) -> Loss:
    """Return the function that computes the loss of a batch; it replaces the forward pass of the model's stacks."""
    stacks = [model.encoder, *([model.decoder] if hasattr(model, "decoder") else [])]
    for stack in stacks:
        way = _t5_stack if hasattr(stack, "embed_tokens") else _grouped_stack
        stack.forward = functools.partial(way, stack)
    return functools.partial(_token_loss, model) if hasattr(model, "lm_head") else lambda batch: model(**batch).loss


def batch_of(model: Any, values: Tensor, leaders: Tensor, known: Tensor, context: int, tokens: Any) -> dict[str, Any]:
    """Turn rows of a block into a batch, as the collators of `rankscope.train.stream` do.

    Args:
        model: the network.
        values: (series, context + horizon), NaN where missing.
        leaders: first member of each series' group, by row.
        known: True for covariates whose future is known.
        context: values of a history.
        tokens: chronos' tokenizer, of Chronos-T5.
    """
    history, target = values[:, :context], values[:, context:]
    if tokens is not None:
        return _tokenised(history, target, tokens)
    if not hasattr(model, "decoder"):
        future = torch.where(known[:, None], target, torch.nan)
        return {
            "context": history,
            "group_ids": leaders,
            "future_target": target.masked_fill(known[:, None], torch.nan),
            "future_covariates": future,
            "num_output_patches": target.shape[1] // model.chronos_config.output_patch_size,
        }
    seen = ~history.isnan()
    count = seen.sum(dim=1, keepdim=True).clamp(min=1)
    mean = history.nan_to_num().sum(dim=1, keepdim=True) / count
    spread = (torch.where(seen, history - mean, 0.0).square().sum(1, True) / count).sqrt()
    return {"context": history, "target": target.masked_fill((target - mean).abs() > FARTHEST * spread, torch.nan)}


def _tokenised(history: Tensor, target: Tensor, tokens: Any) -> dict[str, Tensor]:
    ids, mask, scale = tokens._input_transform(context=history)
    labels, label_mask, _ = tokens._input_transform(context=target, scale=scale)
    labels = labels.masked_fill(~label_mask, -100)
    end, pad = tokens.config.eos_token_id, nn.functional.pad
    before, after = -(ids.shape[1] + 1) % PADDED, -(labels.shape[1] + 1) % PADDED
    return {
        "input_ids": pad(pad(ids, (0, 1), value=end), (before, 0), value=tokens.config.pad_token_id),
        "attention_mask": pad(pad(mask, (0, 1), value=True), (before, 0), value=False),
        "labels": pad(pad(labels, (0, 1), value=end), (0, after), value=-100),
    }


def _token_loss(model: Any, batch: Mapping[str, Tensor]) -> Tensor:
    labels = batch["labels"]
    encoded = model.encoder(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
    given = nn.functional.pad(labels[:, :-1], (1, 0), value=model.config.decoder_start_token_id)
    decoded = model.decoder(
        input_ids=given.clamp(min=0),  # the pad token is 0
        encoder_hidden_states=encoded,
        encoder_attention_mask=batch["attention_mask"],
    ).last_hidden_state
    logits = nn.functional.linear(decoded * model.config.d_model**-0.5, model.lm_head.weight)
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=-100)


def _t5_stack(
    stack: Any,
    input_ids: Tensor | None = None,
    attention_mask: Tensor | None = None,
    inputs_embeds: Tensor | None = None,
    encoder_hidden_states: Tensor | None = None,
    encoder_attention_mask: Tensor | None = None,
    **_: Any,
) -> Any:
    x = stack.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
    x = x.float()
    bias = _positions(stack, x.shape[1], x.device)
    own, cross = _hidden(attention_mask), _hidden(encoder_attention_mask)
    for block in stack.block:
        attention = block.layer[0]
        normed = _norm(attention.layer_norm, x)
        x = x + _attend(attention.SelfAttention, normed, normed, bias, own)
        if encoder_hidden_states is not None:
            attention = block.layer[1]
            normed = _norm(attention.layer_norm, x)
            x = x + _attend(attention.EncDecAttention, normed, encoder_hidden_states, None, cross)
        x = x + _feed(block.layer[-1].DenseReluDense, _norm(block.layer[-1].layer_norm, x))
    return _Answer(_norm(stack.final_layer_norm, x))


class _Answer(tuple):  # type: ignore[type-arg]
    """A stack's answer in the forms in which models ask for it: the first item, and attributes."""

    all_time_self_attn_weights = all_group_self_attn_weights = None

    def __new__(cls, states: Tensor) -> _Answer:
        return super().__new__(cls, (states,))

    @property
    def last_hidden_state(self) -> Tensor:
        return self[0]  # type: ignore[no-any-return]


def _positions(stack: Any, tokens: int, device: Any) -> Tensor:
    first = stack.block[0].layer[0].SelfAttention
    at = torch.arange(tokens, device=device)
    bucket = type(first)._relative_position_bucket(
        at[None, :] - at[:, None],
        bidirectional=not stack.is_decoder,
        num_buckets=first.relative_attention_num_buckets,
        max_distance=first.relative_attention_max_distance,
    )
    bias = first.relative_attention_bias(bucket).permute(2, 0, 1)[None]
    return bias.masked_fill(at[None, :] > at[:, None], HIDDEN) if stack.is_decoder else bias


def _hidden(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else ((1.0 - mask.float()) * HIDDEN)[:, None, None, :]


def _norm(layer: Any, x: Tensor) -> Tensor:
    x = x.float()
    return layer.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + layer.variance_epsilon)


def _attend(own: Any, x: Tensor, source: Tensor, bias: Tensor | None, mask: Tensor | None, turn: Any = None) -> Tensor:
    q, k, v = (_heads(own, layer(states)) for layer, states in ((own.q, x), (own.k, source), (own.v, source)))
    if turn is not None:
        q, k = turn(q), turn(k)
    scores = (q @ k.transpose(-1, -2)).float()
    for term in (bias, mask):
        scores = scores if term is None else scores + term
    found = scores.softmax(dim=-1).to(v.dtype) @ v
    return own.o(found.transpose(-2, -3).flatten(-2))  # type: ignore[no-any-return]


def _heads(own: Any, states: Tensor) -> Tensor:
    return states.unflatten(-1, (own.n_heads, -1)).transpose(-2, -3)


def _feed(dense: Any, x: Tensor) -> Tensor:
    return dense.wo(dense.wi(x).relu())  # type: ignore[no-any-return]


def _grouped_stack(stack: Any, inputs_embeds: Tensor, *, group_ids: Tensor, attention_mask: Tensor, **_: Any) -> Any:
    x = inputs_embeds.float()
    series, tokens, _ = x.shape
    unit = min(UNIT, series)
    first = stack.block[0].layer[0].self_attention
    cos, sin = first.rope_embed(x, torch.arange(tokens, device=x.device)[None])

    def turn(states: Tensor) -> Tensor:
        return states * cos[:, None] + first.rope_embed.rotate_half(states) * sin[:, None]

    mask = _hidden(attention_mask)
    ids, there = group_ids.view(-1, unit), attention_mask.float().view(-1, unit, tokens).transpose(1, 2)
    met = (ids[:, None, :, None] == ids[:, None, None, :]) & (there[:, :, None, :] > 0)
    apart = torch.where(met, 0.0, HIDDEN)[:, :, None]  # (units, tokens, 1, unit, unit)
    for block in stack.block:
        normed = _norm(block.layer[0].layer_norm, x)
        x = x + _attend(block.layer[0].self_attention, normed, normed, None, mask, turn)
        normed = _norm(block.layer[1].layer_norm, x).view(-1, unit, tokens, x.shape[-1]).transpose(1, 2)
        x = x + _attend(block.layer[1].self_attention, normed, normed, None, apart).transpose(1, 2).reshape(x.shape)
        x = x + _feed(block.layer[2].mlp, _norm(block.layer[2].layer_norm, x))
    return _Answer(_norm(stack.final_layer_norm, x))
