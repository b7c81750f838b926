"""Chronos-T5 as the runtime runs it: every series encoded once, its sample paths decoded side by side."""

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
from rankscope.forecast.network import Encoder, FeedForward, Norm, PositionBias
from rankscope.forecast.products import Product, is_dense


@dataclass
class KeyValues:
    """Keys and values that later queries look at.

    Attributes:
        keys: (series or rows, groups, tokens, width).
        values: likewise, with groups and a width of their own.
    """

    keys: Tensor
    values: Tensor


GROWTH = 16
"""Tokens by which the room for the past grows."""


class Past:
    """Keys and values of a self-attention over the tokens so far: dense memory, laid out anew where it grows.

    Args:
        shapes: (rows, groups, most tokens, width) of keys and of values.
        like: a tensor of the same format and device.

    Attributes:
        keys: (rows, groups, tokens there is room for, width); what was not written is zero.
        values: likewise.
    """

    def __init__(self, shapes: Sequence[tuple[int, int, int, int]], like: Tensor) -> None:
        self.shapes = tuple(shapes)
        self.flat = [like.new_empty(prod(shape)) for shape in shapes]
        self.begin()

    @property
    def fit(self) -> tuple[object, ...]:
        """Shapes and formats that must agree with those of another for the two to be exchangeable."""
        return self.shapes, self.flat[0].dtype, self.flat[0].device

    def begin(self, room: int = 0) -> None:
        """Forget all, and make room for so many tokens."""
        self.keys, self.values = (self._view(number, room).zero_() for number in range(2))

    def grow(self, room: int) -> None:
        """Make room for so many tokens; what is there stays."""
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
    """Self-attention, cross-attention and feed-forward of a decoder, for one new token per row."""

    def __init__(self, stock: Any) -> None:
        self.norm = Norm(stock.layer[0].layer_norm)
        self.own = Attention(stock.layer[0].SelfAttention, cached=True, crossed=False)
        self.cross_norm = Norm(stock.layer[1].layer_norm)
        self.cross = Attention(stock.layer[1].EncDecAttention, cached=True, crossed=True)
        self.feed_forward = FeedForward(stock.layer[-1])

    def step(
        self,
        x: Float[Tensor, "rows d_model"],
        at: int | Int[Tensor, " 1"],
        past: Past | KeyValues,
        context: KeyValues,
        bias: Float[Tensor, "heads tokens"],
        mask: Float[Tensor, "series 1 1 length"] | None,
    ) -> Float[Tensor, "rows d_model"]:
        """Take one token per row, at position ``at``; rows of a series lie together. ``x`` may be written to.

        Queries look at as many tokens as ``bias`` has; it shuts out those that are to come.
        """
        queries, key, value = self.own.ask(self.norm(x))
        if isinstance(at, int):
            past.keys[:, :, at], past.values[:, :, at] = key, value
        else:
            past.keys.index_copy_(2, at, key.unsqueeze(2))
            past.values.index_copy_(2, at, value.unsqueeze(2))
        tokens = bias.shape[-1]
        keys, values = past.keys[:, :, :tokens], past.values[:, :, :tokens]
        x = self.own.answer(x, attend(queries, keys, values, bias))
        (asked,) = self.cross.ask(self.cross_norm(x))
        series = len(context.keys)
        attended = attend_shared(asked.unflatten(0, (series, -1)), context.keys, context.values, mask)
        x = self.cross.answer(x, attended.flatten(0, 1))
        return self.feed_forward(x)


class T5Network:
    """A T5 that draws sample paths; it shares the weights of the stock module.

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
        self.head = Product([stock.lm_head], packed=True) if is_dense(stock.lm_head) else stock.lm_head
        self.vocabulary = int(stock.lm_head.out_features)
        scaled = getattr(config, "scale_decoder_outputs", config.tie_word_embeddings)
        self.scale = config.d_model**-0.5 if scaled else 1.0
        self.start = int(config.decoder_start_token_id)
        self._spare: list[list[Past]] = []

    @property
    def device(self) -> torch.device:
        """Device of its weights."""
        return self.norm.gain.device

    @property
    def dtype(self) -> torch.dtype:
        """Format of its weights."""
        return self.norm.gain.dtype

    def remember(self, tokens: Int[Tensor, "series length"], kept: Bool[Tensor, "series length"]) -> list[KeyValues]:
        """Encode series that end together and project the keys and values of every cross-attention.

        Series are encoded a few at a time, those of like length together; give them the longest first.
        """
        made: list[KeyValues] = []
        lengths = lengths_of(kept)
        for some in chunks(torch.arange(len(tokens), device=tokens.device), lengths):
            run = slice(int(some[0]), int(some[-1]) + 1)
            length = int(lengths[run].max())
            part = kept[run, -length:]
            hidden = self.encoder(self.embed_input(tokens[run, -length:]), None if bool(part.all()) else part)
            for number, layer in enumerate(self.layers):
                found = [one.transpose(1, 2) for one in layer.cross.remember(hidden)]
                if len(made) == number:
                    shapes = [(len(tokens), one.shape[1], tokens.shape[1], one.shape[3]) for one in found]
                    made.append(KeyValues(*(one.new_zeros(shape) for one, shape in zip(found, shapes, strict=True))))
                made[number].keys[run, :, -length:] = found[0]
                made[number].values[run, :, -length:] = found[1]
        return made

    @cached_property
    def widths(self) -> tuple[list[tuple[tuple[int, int], ...]], list[tuple[tuple[int, int], ...]]]:
        """(groups, width) of the keys and values that a token leaves in every layer: of the past, and of a context."""
        token = self.embed_output.weight[:1].detach()
        own = [layer.own.ask(layer.norm(token))[1:] for layer in self.layers]
        cross = [layer.cross.remember(token) for layer in self.layers]
        past, context = ([tuple((p.shape[1], p.shape[2]) for p in parts) for parts in some] for some in (own, cross))
        return past, context

    @property
    def cached_numbers(self) -> tuple[int, int, int]:
        """Bytes per number, and numbers that a token of a context and one of the past leave in all layers."""
        past, context = (sum(groups * width for parts in some for groups, width in parts) for some in self.widths)
        return self.norm.gain.element_size(), context, past

    def room(self, rows: int, horizon: int) -> list[Past]:
        """Room for the past of so many rows: that of the last batch, if it was of this size.

        The first touch of fresh memory costs as much as reading it many times.
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

    def forget(self) -> None:
        """Free the room that was kept."""
        self._spare.clear()

    def give_back(self, past: list[Past]) -> None:
        """Keep the room of one batch for the next."""
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
        """Logits of the token after one token per row; arguments as in `DecoderLayer.step`, layer by layer."""
        x = self.embed_output(tokens)
        for layer, own, cross in zip(self.layers, past, context, strict=True):
            x = layer.step(x, at, own, cross, bias, mask)
        x = self.norm(x)
        return self.head(x if self.scale == 1.0 else x * self.scale)
