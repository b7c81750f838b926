"""Fast Chronos-T5: each series is encoded once and its sample paths are decoded in a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankscope.forecast.attention import Attention, attend, attend_shared
from rankscope.forecast.batches import chunks, lengths_of
from rankscope.forecast.network import Encoder, FeedForward, Norm, PositionBias, Skip
from rankscope.forecast.products import Product, is_dense


@dataclass
class KeyValues:
    """Cached keys and values.

    Attributes:
        keys: (series or rows, groups, tokens, width).
        values: same layout, with their own groups and width.
    """

    keys: Tensor
    values: Tensor


GROWTH = 16
"""Tokens by which the key/value cache grows."""


class Past:
    """Growing key/value cache of a self-attention layer, in contiguous memory.

    Args:
        shapes: (rows, groups, max. tokens, width) of keys and of values.
        like: tensor with the dtype and device of the cache.

    Attributes:
        keys: (rows, groups, capacity in tokens, width); zero where not yet written.
        values: same layout.
    """

    def __init__(self, shapes: Sequence[tuple[int, int, int, int]], like: Tensor) -> None:
        self.shapes = tuple(shapes)
        self.flat = [like.new_empty(prod(shape)) for shape in shapes]
        self.begin()

    @property
    def fit(self) -> tuple[object, ...]:
        """Shapes, dtype and device; caches with equal values are interchangeable."""
        return self.shapes, self.flat[0].dtype, self.flat[0].device

    def begin(self, room: int = 0) -> None:
        """Clear the cache and set its capacity to ``room`` tokens."""
        self.keys, self.values = (self._view(number, room).zero_() for number in range(2))

    def grow(self, room: int) -> None:
        """Grow the capacity to ``room`` tokens, keeping the contents."""
        had = self.keys.shape[2]
        if room <= had:
            return
        kept = []
        for number, old in enumerate((self.keys, self.values)):
            copy, new = old.clone(), self._view(number, room)
            new[:, :, :had], new[:, :, had:] = copy, 0.0
            kept.append(new)
        self.keys, self.values = kept

    def _view(self, number: int, room: int) -> Tensor:
        rows, groups, _, width = self.shapes[number]
        return self.flat[number][: rows * groups * room * width].view(rows, groups, room, width)


class DecoderLayer:
    """Decoder layer for incremental decoding, one new token per row."""

    def __init__(self, stock: Any) -> None:
        self.norm, self.skip = Norm(stock.layer[0].layer_norm), Skip(stock.layer[0], repeated=True)
        self.own = Attention(stock.layer[0].SelfAttention, cached=True, crossed=False)
        self.cross_norm, self.cross_skip = Norm(stock.layer[1].layer_norm), Skip(stock.layer[1], repeated=True)
        self.cross = Attention(stock.layer[1].EncDecAttention, cached=True, crossed=True)
        self.feed_forward = FeedForward(stock.layer[-1], repeated=True)

    def step(
        self,
        x: Float[Tensor, "rows d_own"],
        at: int | Int[Tensor, " 1"],
        past: Past | KeyValues,
        context: KeyValues,
        bias: Float[Tensor, "heads tokens"],
        mask: Float[Tensor, "series 1 1 length"] | None,
    ) -> Float[Tensor, "rows d_next"]:
        """Process one token per row at position ``at``; rows of a series are adjacent. May modify ``x`` in place.

        The length of ``bias`` sets the number of attended tokens; it also masks future ones.
        """
        queries, key, value = self.own.project(self.norm(x))
        if isinstance(at, int):
            past.keys[:, :, at], past.values[:, :, at] = key, value
        else:
            past.keys.index_copy_(2, at, key.unsqueeze(2))
            past.values.index_copy_(2, at, value.unsqueeze(2))
        tokens = bias.shape[-1]
        keys, values = past.keys[:, :, :tokens], past.values[:, :, :tokens]
        x = self.own.add_output(self.skip(x), attend(queries, keys, values, bias))
        (queries,) = self.cross.project(self.cross_norm(x))
        series = len(context.keys)
        attended = attend_shared(queries.unflatten(0, (series, -1)), context.keys, context.values, mask)
        x = self.cross.add_output(self.cross_skip(x), attended.flatten(0, 1))
        return self.feed_forward(x)


class T5Network:
    """T5 encoder–decoder for sampling; shares the weights of the stock module.

    Args:
        stock: a `T5ForConditionalGeneration`, dense or compressed, in inference mode.
    """

    def __init__(self, stock: Any) -> None:
        config = stock.config
        self.encoder = Encoder(stock.encoder)
        self.layers = [DecoderLayer(block) for block in stock.decoder.block]
        self.bias = PositionBias(stock.decoder.block[0].layer[0].SelfAttention)
        self.norm = Norm(stock.decoder.final_layer_norm)
        self.embed_input, self.embed_output = stock.encoder.embed_tokens, stock.decoder.embed_tokens
        self.head = Product([stock.lm_head], repeated=True, packed=True) if is_dense(stock.lm_head) else stock.lm_head
        self.vocabulary = int(stock.lm_head.out_features)
        scaled = getattr(config, "scale_decoder_outputs", config.tie_word_embeddings)
        self.scale = config.d_model**-0.5 if scaled else 1.0
        self.start = int(config.decoder_start_token_id)
        self._spare: list[list[Past]] = []

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.norm.gain.device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the weights."""
        return self.norm.gain.dtype

    def encode_context(
        self, tokens: Int[Tensor, "series length"], kept: Bool[Tensor, "series length"]
    ) -> list[KeyValues]:
        """Encode right-aligned series and project the keys and values of every cross-attention layer.

        Series of similar length are encoded together in small groups; pass them sorted, longest first.
        """
        made: list[KeyValues] = []
        lengths = lengths_of(kept)
        for some in chunks(torch.arange(len(tokens), device=tokens.device), lengths):
            run = slice(int(some[0]), int(some[-1]) + 1)
            length = int(lengths[run].max())
            part = kept[run, -length:]
            hidden = self.encoder(self.embed_input(tokens[run, -length:]), None if bool(part.all()) else part)
            for number, layer in enumerate(self.layers):
                found = [one.transpose(1, 2) for one in layer.cross.keys_values(hidden)]
                if len(made) == number:
                    shapes = [(len(tokens), one.shape[1], tokens.shape[1], one.shape[3]) for one in found]
                    made.append(KeyValues(*(one.new_zeros(shape) for one, shape in zip(found, shapes, strict=True))))
                made[number].keys[run, :, -length:] = found[0]
                made[number].values[run, :, -length:] = found[1]
        return made

    @cached_property
    def widths(self) -> tuple[list[tuple[tuple[int, int], ...]], list[tuple[tuple[int, int], ...]]]:
        """Return (groups, width) of cached keys and values for every layer: self-attention, then cross-attention."""
        own = [layer.own.project(layer.norm.gain[None])[1:] for layer in self.layers]
        cross = [layer.cross.keys_values(self.encoder.norm.gain[None]) for layer in self.layers]
        past, context = ([tuple((p.shape[1], p.shape[2]) for p in parts) for parts in some] for some in (own, cross))
        return past, context

    @property
    def cached_numbers(self) -> tuple[int, int, int]:
        """Return bytes per element, and cached elements per context token and per decoded token over all layers."""
        past, context = (sum(groups * width for parts in some for groups, width in parts) for some in self.widths)
        return self.norm.gain.element_size(), context, past

    def allocate(self, rows: int, horizon: int) -> list[Past]:
        """Return key/value caches for ``rows`` rows, reusing those of the last batch if they match.

        Page faults of fresh memory are expensive.
        """
        made = [[(rows, groups, horizon, width) for groups, width in parts] for parts in self.widths[0]]
        try:
            spare = self._spare.pop()
        except IndexError:
            spare = []
        like = self.norm.gain
        if [one.fit for one in spare] == [(tuple(shapes), like.dtype, like.device) for shapes in made]:
            return spare
        return [Past(shapes, like) for shapes in made]

    def free_buffers(self) -> None:
        """Free the kept caches."""
        self._spare.clear()

    def release(self, past: list[Past]) -> None:
        """Keep the caches of a batch for reuse by the next."""
        self._spare[:] = [past]

    def step(
        self,
        tokens: Int[Tensor, " rows"],
        at: int | Int[Tensor, " 1"],
        past: Sequence[Past | KeyValues],
        context: list[KeyValues],
        bias: Float[Tensor, "heads tokens"],
        mask: Float[Tensor, "series 1 1 length"] | None,
    ) -> Float[Tensor, "rows vocabulary"]:
        """Return next-token logits; arguments as in `DecoderLayer.step`, one per layer."""
        x = self.embed_output(tokens)
        for layer, own, cross in zip(self.layers, past, context, strict=True):
            x = layer.step(x, at, own, cross, bias, mask)
        x = self.norm(x)
        return self.head(x if self.scale == 1.0 else x * self.scale)
