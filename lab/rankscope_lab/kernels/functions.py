"""Autograd functions for compiled attention, feed-forward and dropout."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

LANES, ROWS = 16, 8
"""Floats of a vector, and what rows of weights are a multiple of, in ``cpu.cpp``."""
WIDTHS = (8, 16, 32, 64)
"""Head widths that are compiled."""
CACHED = 1 << 19
"""Floats of a piece of the feed-forward layer's inner activations: two megabytes, so that they stay in the cache."""


def _mask(dropout: float) -> tuple[int, float, int]:
    """A hash below the first number drops its element, others grow by the second; the third is the seed.

    The seed is drawn from torch's global generator, so that ``torch.manual_seed`` decides. Without dropout nothing is
    drawn: a validation in between leaves the rest of a training as it is.
    """
    if dropout == 0:
        return 0, 1.0, 0
    low, high = torch.randint(0, 2**32, (2,), dtype=torch.int64).tolist()
    return min(round(dropout * 2**32), 2**32 - 1), 1 / (1 - dropout), low | high << 32


class _Attention(torch.autograd.Function):
    """Softmax attention of packed queries, keys and values."""

    @staticmethod
    def forward(ctx: Any, packed: Tensor, heads: int, causal: int, dropout: float, compiled: ctypes.CDLL) -> Tensor:
        packed = packed.contiguous()
        batch, tokens, width = packed.shape
        d_head = width // 3 // heads
        pad = -(-tokens // LANES) * LANES
        weights = packed.new_empty(batch, heads, -(-tokens // ROWS) * ROWS, pad)
        out = packed.new_empty(batch, tokens, width // 3)
        work = packed.new_empty(pad * (4 * d_head + 2 * ROWS) + d_head)
        sizes = (batch, tokens, heads, d_head, int(causal), *_mask(dropout))
        failed = compiled.attention_forward(
            packed.data_ptr(), *sizes, weights.data_ptr(), out.data_ptr(), work.data_ptr()
        )
        assert not failed, f"d_head {d_head} is not compiled"
        ctx.save_for_backward(packed, weights)
        ctx.sizes, ctx.compiled, ctx.work = sizes, compiled, work
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        packed, weights = ctx.saved_tensors
        grad, out = grads[0].contiguous(), torch.empty_like(packed)
        ctx.compiled.attention_backward(
            packed.data_ptr(), *ctx.sizes, weights.data_ptr(), grad.data_ptr(), out.data_ptr(), ctx.work.data_ptr()
        )
        return out, None, None, None, None


class _Dropout(torch.autograd.Function):
    """Dropout with a mask hashed from position and seed, recomputed in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dropout: float, compiled: ctypes.CDLL) -> Tensor:
        ctx.mask, ctx.compiled = _mask(dropout), compiled
        return _drop(x, ctx)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _drop(grads[0], ctx), None, None


def _drop(x: Tensor, ctx: Any) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    ctx.compiled.dropout(x.data_ptr(), x.numel(), 0, *ctx.mask, out.data_ptr())
    return out


class _FeedForward(torch.autograd.Function):
    """Chunked feed-forward; the backward pass recomputes the inner activations."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        inner: Tensor,
        inner_bias: Tensor,
        outer: Tensor,
        outer_bias: Tensor,
        dropout: float,
        compiled: ctypes.CDLL,
    ) -> Tensor:
        tokens = x.flatten(0, -2).contiguous()
        drop = _mask(dropout), _mask(dropout)
        before = tokens.new_empty(len(tokens), len(inner))
        out = tokens.new_empty(len(tokens), len(outer))
        active = tokens.new_empty(_piece(inner), len(inner))
        for at, rows in _pieces(tokens, inner):
            h, a, y = before[rows], active[: rows.stop - at], out[rows]
            torch.addmm(inner_bias, tokens[rows], inner.T, out=h)
            compiled.gelu_dropout(h.data_ptr(), h.numel(), at * len(inner), *drop[0], a.data_ptr())
            torch.addmm(outer_bias, a, outer.T, out=y)
            compiled.dropout(y.data_ptr(), y.numel(), at * len(outer), *drop[1], y.data_ptr())
        ctx.save_for_backward(tokens, before, inner, outer)
        ctx.drop, ctx.compiled = drop, compiled
        return out.view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        tokens, before, inner, outer = ctx.saved_tensors
        grad = grads[0].flatten(0, -2).contiguous()
        d_inner, d_outer = torch.zeros_like(inner), torch.zeros_like(outer)
        d_inner_bias, d_outer_bias = inner.new_zeros(len(inner)), outer.new_zeros(len(outer))
        d_tokens = torch.empty_like(tokens)
        active, change = (tokens.new_empty(_piece(inner), len(inner)) for _ in range(2))
        kept = tokens.new_empty(_piece(inner), len(outer))
        compiled = ctx.compiled
        for at, rows in _pieces(tokens, inner):
            count = rows.stop - at
            h, g, a, c, k = before[rows], grad[rows], active[:count], change[:count], kept[:count]
            compiled.dropout(g.data_ptr(), g.numel(), at * len(outer), *ctx.drop[1], k.data_ptr())
            torch.mm(k, outer, out=c)
            compiled.gelu_dropout_back(
                h.data_ptr(), h.numel(), at * len(inner), *ctx.drop[0], c.data_ptr(), a.data_ptr()
            )
            d_outer.addmm_(k.T, a)
            d_outer_bias += k.sum(0)
            d_inner.addmm_(c.T, tokens[rows])
            d_inner_bias += c.sum(0)
            torch.mm(c, inner, out=d_tokens[rows])
        return d_tokens.view_as(grads[0]), d_inner, d_inner_bias, d_outer, d_outer_bias, None, None


def _piece(inner: Float[Tensor, "d_ff d_model"]) -> int:
    """Tokens of a piece."""
    return max(1, CACHED // len(inner))


def _pieces(tokens: Float[Tensor, "tokens d_model"], inner: Tensor) -> Iterator[tuple[int, slice]]:
    """First token and rows of each piece."""
    step = _piece(inner)
    for at in range(0, len(tokens), step):
        yield at, slice(at, min(at + step, len(tokens)))


def packed_attention(
    packed: Float[Tensor, "batch tokens three_d_model"],
    heads: int,
    *,
    causal: int,
    dropout: float,
    compiled: ctypes.CDLL,
) -> Float[Tensor, "batch tokens d_model"]:
    """`rankscope_lab.blocks.scaled_dot_product` of each head, heads side by side.

    Args:
        packed: queries, keys and values of all heads, in this order; float32 on the CPU.
        heads: of a width in `WIDTHS`.
        causal: tokens of a time step, of which none looks at a later one; 0: all look at all.
        dropout: share of the weights set to 0.
        compiled: the functions.
    """
    return _Attention.apply(packed, heads, causal, dropout, compiled)


def feed_forward(
    x: Float[Tensor, "*axes d_model"],
    inner: nn.Linear,
    outer: nn.Linear,
    dropout: float,
    compiled: ctypes.CDLL,
) -> Float[Tensor, "*axes d_model"]:
    """Drop(W₂ Drop(GELU(W₁ x + b₁)) + b₂), token by token; float32 on the CPU.

    Args:
        x: tokens.
        inner: W₁ and b₁.
        outer: W₂ and b₂.
        dropout: share of the elements set to 0, inside and of the output.
        compiled: the functions.
    """
    return _FeedForward.apply(x, inner.weight, inner.bias, outer.weight, outer.bias, dropout, compiled)


def dropped(x: Float[Tensor, "*axes"], dropout: float, compiled: ctypes.CDLL) -> Float[Tensor, "*axes"]:
    """``x`` with a share of its elements set to 0 and the others grown by 1 / (1 − dropout)."""
    return _Dropout.apply(x, dropout, compiled)
