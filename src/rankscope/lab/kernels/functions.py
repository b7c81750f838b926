"""Attention and dropout by the compiled functions, with gradients."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

LANES, GROUP = 16, 4
"""Floats of a vector, and queries worked on together, in ``cpu.cpp``."""
WIDTHS = (8, 16, 32, 64)
"""Head widths that are compiled."""


def _threshold(dropout: float) -> int:
    """A hash below it drops its element."""
    return min(round(dropout * 2**32), 2**32 - 1)


def _seed() -> int:
    """From torch's global generator, so that ``torch.manual_seed`` decides."""
    low, high = torch.randint(0, 2**32, (2,), dtype=torch.int64).tolist()
    return low | high << 32


class _Attention(torch.autograd.Function):
    """Softmax attention of packed queries, keys and values."""

    @staticmethod
    def forward(ctx: Any, packed: Tensor, heads: int, causal: int, dropout: float, compiled: ctypes.CDLL) -> Tensor:
        packed = packed.contiguous()
        batch, tokens, width = packed.shape
        d_head = width // 3 // heads
        pad = -(-tokens // LANES) * LANES
        weights = packed.new_empty(batch, heads, -(-tokens // GROUP) * GROUP, pad)
        out = packed.new_empty(batch, tokens, width // 3)
        work = packed.new_empty(pad * (4 * d_head + 2 * GROUP) + d_head)
        sizes = (batch, tokens, heads, d_head, int(causal), _threshold(dropout), 1 / (1 - dropout), _seed())
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
    """A mask that is a hash of position and seed, so that backward makes it again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dropout: float, compiled: ctypes.CDLL) -> Tensor:
        ctx.settings, ctx.compiled = (_threshold(dropout), 1 / (1 - dropout), _seed()), compiled
        return _drop(x, ctx)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _drop(grads[0], ctx), None, None


def _drop(x: Tensor, ctx: Any) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    ctx.compiled.dropout(x.data_ptr(), x.numel(), *ctx.settings, out.data_ptr())
    return out


def packed_attention(
    packed: Float[Tensor, "batch tokens three_d_model"],
    heads: int,
    *,
    causal: int,
    dropout: float,
    compiled: ctypes.CDLL,
) -> Float[Tensor, "batch tokens d_model"]:
    """What `rankscope.lab.blocks.scaled_dot_product` gives for each head, heads side by side.

    Args:
        packed: queries, keys and values of all heads, in this order; float32 on the CPU.
        heads: of a width in `WIDTHS`.
        causal: tokens of a time step, of which none looks at a later one; 0: all look at all.
        dropout: share of the weights set to 0.
        compiled: the functions.
    """
    return _Attention.apply(packed, heads, causal, dropout, compiled)


def dropped(x: Float[Tensor, "*axes"], dropout: float, compiled: ctypes.CDLL) -> Float[Tensor, "*axes"]:
    """``x`` with a share of its elements set to 0 and the others grown by 1 / (1 − dropout)."""
    return _Dropout.apply(x, dropout, compiled)
