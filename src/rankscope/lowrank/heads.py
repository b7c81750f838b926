"""T5's attention with heads of any width: per layer, and per head for queries and keys and for values and outputs."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import __version__ as release
from transformers.cache_utils import EncoderDecoderCache, StaticCache
from transformers.models.t5 import modeling_t5
from transformers.models.t5.modeling_t5 import T5Attention

from rankscope.errors import CheckpointError, OptionError
from rankscope.families import HeadWidth

_STOCK = inspect.signature(T5Attention.forward).parameters
_RETURNS_CACHE = "past_key_value" in _STOCK
"""True where the attention returns the cache (transformers up to 4.55)."""
_CHOOSES_KERNEL = hasattr(modeling_t5, "eager_attention_forward")
"""True where T5 has transformers' choice of attention kernels (late releases of 5)."""
_STATIC_FITS = not release.startswith("4.")
"""True where a static cache takes its sizes from what is cached, those of keys and values apart (from 5.0 on)."""


class Heads:
    """Columns of a projection in heads of given widths.

    Equal widths are one reshape. Unequal ones are cached side by side, exactly as wide as they are, and spread to the
    widest head with zeros only where they are used: zeros add nothing to a score, and those of values are dropped.

    Args:
        widths: width of every head.
        beside: whether equal widths are cached side by side, too; a static cache asks for keys and values alike.
    """

    def __init__(self, widths: tuple[int, ...], *, beside: bool = False) -> None:
        self.widest, self.total = max(widths), sum(widths)
        self.equal = are_equal(widths)
        self.beside = beside or not self.equal
        self.places: list[int] = []  # column of every (head, position); ``total`` where the head is narrower
        for width in widths:
            start = sum(column < self.total for column in self.places)
            self.places += [start + column if column < width else self.total for column in range(self.widest)]
        self.kept = [place for place, column in enumerate(self.places) if column < self.total]

    def cached(self, x: Float[Tensor, "batch tokens total"]) -> Float[Tensor, "batch groups tokens width"]:
        """The form that is cached: (batch, heads, tokens, width), or (batch, 1, tokens, total) side by side."""
        return x.unsqueeze(1) if self.beside else x.unflatten(-1, (-1, self.widest)).transpose(1, 2)

    def spread(self, cached: Float[Tensor, "batch groups tokens width"]) -> Float[Tensor, "batch heads tokens widest"]:
        """Give every head a matrix of its own, all of the same width."""
        if not self.beside:
            return cached
        wide = cached[:, 0]
        if not self.equal:
            side = nn.functional.pad(wide, (0, 1))  # the last column, all zeros, fills the narrower heads
            wide = side.index_select(-1, torch.tensor(self.places, device=cached.device))
        return wide.unflatten(-1, (-1, self.widest)).transpose(1, 2)

    def spread_rows(self, weight: Float[Tensor, "total columns"]) -> Float[Tensor, "spread columns"]:
        """Rows of a matrix for heads that are all as wide as the widest, zeros in those that are narrower."""
        if self.equal:
            return weight
        padded = nn.functional.pad(weight, (0, 0, 0, 1))
        return padded.index_select(0, torch.tensor(self.places, device=weight.device))

    def joined(self, x: Float[Tensor, "batch tokens heads widest"]) -> Float[Tensor, "batch tokens total"]:
        """Concatenate the heads' outputs, without the padding of narrower ones."""
        flat = x.flatten(-2)
        return flat if self.equal else flat.index_select(-1, torch.tensor(self.kept, device=x.device))


def are_equal(widths: tuple[int, ...]) -> bool:
    """Return True if all heads have the same width."""
    return len(set(widths)) == 1


class HeadWidthAttention(T5Attention):
    """T5's attention whose head h has queries and keys of width ``qk[h]`` and values of width ``vo[h]``.

    Stored are q and k (Σqk, d_model), v (Σvo, d_model) and o (d_model, Σvo); the cache holds Σqk + Σvo numbers per
    token. T5 scales no scores and its position biases know no width, so heads of the stock width are the stock layer:
    same weights, same kernel, same bits.

    Args:
        stock: the layer whose place it takes; settings and position bias are its.
        config: config of the stack.
        layout: width of every head.

    Raises:
        CheckpointError: the layout lists another number of heads.
    """

    def __init__(self, stock: T5Attention, config: Any, layout: HeadWidth) -> None:
        super().__init__(config, stock.has_relative_attention_bias, getattr(stock, "layer_idx", None))
        if len(layout.qk) != self.n_heads:
            raise CheckpointError(f"config.json: {len(layout.qk)} head widths where num_heads is {self.n_heads}.")
        beside = not (are_equal(layout.qk) and are_equal(layout.vo))
        self.layout, self.qk, self.vo = layout, Heads(layout.qk, beside=beside), Heads(layout.vo, beside=beside)
        self.is_causal = getattr(stock, "is_causal", False)
        self.key_value_proj_dim, self.inner_dim = self.qk.widest, self.vo.total
        like: dict[str, Any] = {"bias": False, "device": stock.q.weight.device, "dtype": stock.q.weight.dtype}
        self.q = nn.Linear(stock.q.in_features, self.qk.total, **like)
        self.k = nn.Linear(stock.k.in_features, self.qk.total, **like)
        self.v = nn.Linear(stock.v.in_features, self.vo.total, **like)
        self.o = nn.Linear(self.vo.total, stock.o.out_features, **like)
        if self.has_relative_attention_bias:
            self.relative_attention_bias = stock.relative_attention_bias

    def forward(
        self,
        hidden_states: Float[Tensor, "batch tokens d_model"],
        mask: Tensor | None = None,
        key_value_states: Tensor | None = None,
        position_bias: Tensor | None = None,
        past_key_values: Any = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Attend to the tokens themselves, or to ``key_value_states``; called and answered as the stock layer is."""
        if not _CHOOSES_KERNEL:
            cache = kwargs.get("past_key_value") if past_key_values is None else past_key_values
            return self._older_forward(hidden_states, mask, key_value_states, position_bias, cache, **kwargs)
        seen = _seen(past_key_values, self.layer_idx)
        query = self.qk.spread(self.qk.cached(self.q(hidden_states)))
        key, value = self._keys_and_values(hidden_states, key_value_states, past_key_values)
        if position_bias is None:
            position_bias = self._bias(query, key, past_seen_tokens=seen)
        kernel = modeling_t5.ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, modeling_t5.eager_attention_forward
        )
        dropout = self.dropout if self.training else 0.0
        attended, weights = kernel(
            self, query, key, value, mask, dropout=dropout, scaling=1.0, position_bias=position_bias, **kwargs
        )
        return self.o(self.vo.joined(attended)), position_bias, weights

    def _older_forward(
        self,
        hidden_states: Tensor,
        mask: Tensor | None,
        other: Tensor | None,
        position_bias: Tensor | None,
        cache: Any,
        *,
        layer_head_mask: Tensor | None = None,
        query_length: Any = None,
        output_attentions: bool = False,
        cache_position: Tensor | None = None,
        **_: Any,
    ) -> tuple[Any, ...]:
        """Before T5 chose kernels, the mask was part of the position bias that the first layer hands on."""
        query = self.qk.spread(self.qk.cached(self.q(hidden_states)))
        extra = [] if other is not None or cache_position is None else [{"cache_position": cache_position}]
        key, value = self._keys_and_values(hidden_states, other, cache, *extra)
        if position_bias is None:
            if self.has_relative_attention_bias and query_length is None and cache_position is not None:
                query_length = cache_position[-1] + 1
            position_bias = self._bias(query, key, query_length, cache_position=cache_position)
            if mask is not None:
                position_bias = position_bias + mask[:, :, :, : key.shape[2]]
        scores = torch.matmul(query, key.transpose(3, 2)) + position_bias
        weights = nn.functional.softmax(scores.float(), dim=-1).type_as(scores)
        weights = nn.functional.dropout(weights, p=self.dropout, training=self.training)
        if layer_head_mask is not None:
            weights = weights * layer_head_mask
        output = self.o(self.vo.joined(torch.matmul(weights, value).transpose(1, 2).contiguous()))
        answer = (output, cache, position_bias) if _RETURNS_CACHE else (output, position_bias)
        return (*answer, weights) if output_attentions else answer

    def _keys_and_values(self, own: Tensor, other: Tensor | None, cache: Any, *extra: Any) -> tuple[Tensor, Tensor]:
        """Project keys and values, or take them from the cache; what is cached has the heads' own widths.

        Raises:
            OptionError: the cache is static, and of a release that gives it the widths of the stock model.
        """
        layer: Any = self.layer_idx
        part = cache
        if isinstance(cache, EncoderDecoderCache):
            part = cache.self_attention_cache if other is None else cache.cross_attention_cache
            if other is not None and cache.is_updated.get(layer):
                keys, values = cached(part, layer)
                return self.qk.spread(keys), self.vo.spread(values)
        if isinstance(part, StaticCache) and not _STATIC_FITS:
            raise OptionError(
                f"the static cache of transformers {release} has no place for heads of other widths than the stock "
                "model's: leave cache_implementation out, or use transformers 5."
            )
        source = own if other is None else other
        keys, values = self.qk.cached(self.k(source)), self.vo.cached(self.v(source))
        if part is not None:
            keys, values = part.update(keys, values, layer, *extra)
            if other is not None and isinstance(cache, EncoderDecoderCache):
                cache.is_updated[layer] = True
        return self.qk.spread(keys), self.vo.spread(values)

    def _bias(self, query: Tensor, key: Tensor, length: Any = None, **position: Any) -> Tensor:
        """Position bias of the last tokens of ``length``, by default of those that ask; zeros without a table."""
        asking = query.shape[2]
        if self.has_relative_attention_bias:
            whole = asking if length is None else length
            return self.compute_bias(whole, key.shape[2], device=query.device, **position)[:, :, -asking:, :]
        zeros = query.new_zeros(1, self.n_heads, asking, key.shape[2])
        return zeros.requires_grad_() if self.gradient_checkpointing and self.training else zeros


def _seen(cache: Any, layer: int | None) -> Any:
    """Tokens that the cache holds already; copied, because a static cache counts on in place."""
    if cache is None:
        return 0
    length = cache.get_seq_length(layer)
    return length.clone() if isinstance(length, Tensor) else length


def cached(cache: Any, layer: int | None) -> tuple[Tensor, Tensor]:
    """Keys and values of a layer, as they lie in a cache of any release of transformers."""
    if hasattr(cache, "layers"):
        return cache.layers[layer].keys, cache.layers[layer].values
    return cache.key_cache[layer], cache.value_cache[layer]
