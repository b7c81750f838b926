"""Compiled dropout, attention and feed-forward layers for training `rankscope_lab.blocks` models on one CPU core."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor, nn

from rankscope_lab.blocks.attention import MultiHeadAttention
from rankscope_lab.blocks.layers import FeedForward
from rankscope_lab.kernels.compiled import library
from rankscope_lab.kernels.functions import WIDTHS, dropped, feed_forward, packed_attention

__all__ = ["accelerate", "library"]


class CompiledDropout(nn.Dropout):
    """Compiled dropout for float32 CPU training; falls back to torch."""

    compiled: ctypes.CDLL

    def forward(self, input: Tensor) -> Tensor:
        """Drop elements in training."""
        if not self.training or self.p == 0 or self.p >= 1 or not _fits(input):
            return super().forward(input)
        return dropped(input.float(), self.p, self.compiled)


class CompiledAttention(MultiHeadAttention):
    """Compiled self-attention; falls back to its base class."""

    compiled: ctypes.CDLL

    def forward(self, x: Tensor, source: Tensor | None = None, *, causal: int = False) -> Tensor:
        """See `MultiHeadAttention`."""
        if source is not None or not _fits(x) or x.ndim != 3:
            return super().forward(x, source, causal=causal)
        packed = nn.functional.linear(x, self.in_proj_weight, self.in_proj_bias).float()
        dropout = self.dropout if self.training else 0.0
        mixed = packed_attention(packed, self.heads, causal=causal, dropout=dropout, compiled=self.compiled)
        return self.out_proj(mixed)


class CompiledFeedForward(FeedForward):
    """Compiled GELU feed-forward for float32 CPU training; falls back to its base class."""

    compiled: ctypes.CDLL

    def forward(self, input: Tensor) -> Tensor:
        """See `FeedForward`."""
        fits = input.device.type == "cpu" and input.dtype == self.inner.weight.dtype == torch.float32
        if not self.training or not fits or torch.is_autocast_enabled("cpu"):
            return super().forward(input)
        return feed_forward(input, self.inner, self.outer, self.drop_inner.p, self.compiled)


def _fits(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype.itemsize <= 4 and x.is_floating_point()


def accelerate(model: nn.Module) -> bool:
    """Replace a model's dropout, self-attention and GELU feed-forward layers by compiled ones.

    Parameters and module names are unchanged.

    Dropout masks differ (other random numbers), and results differ in the last digits.

    Returns:
        True if anything was replaced; False without a C++ compiler.
    """
    compiled = library()
    if compiled is None:
        return False
    for module in model.modules():
        if type(module) is nn.Dropout:
            module.__class__ = CompiledDropout
        elif type(module) is MultiHeadAttention and module.out_proj.in_features // module.heads in WIDTHS:
            module.__class__ = CompiledAttention
        elif type(module) is FeedForward and isinstance(module.act, nn.GELU) and module.drop_inner.p < 1:
            module.__class__ = CompiledFeedForward
        else:
            continue
        module.compiled = compiled  # type: ignore[assignment]
    return True
