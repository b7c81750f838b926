"""Transformer layers: add & norm, feed-forward, and attention, projection and decoder blocks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.errors import OptionError, unknown_choice
from rankscope_lab.blocks.attention import MultiHeadAttention


class AddNorm(nn.Module):
    """LN(x + Drop(F x)), as in the first transformers.

    LN u = γ ⊙ (u − mean u) / √(var u + 1e-5) + b, mean and population variance over the features of each token.
    """

    def __init__(self, d_model: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.drop = nn.Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "batch tokens d_model"], sublayer: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "batch tokens d_model"]:
        """Apply ``sublayer`` with residual connection and normalisation."""
        return self.norm(x + self.drop(sublayer(x)))


ACTIVATIONS = {"gelu": nn.GELU, "relu": nn.ReLU}
"""GELU is the exact (erf) form."""


class FeedForward(nn.Sequential):
    """Linear(d_model, d_ff) → activation → dropout → Linear(d_ff, d_model) → dropout, token by token."""

    inner: nn.Linear
    act: nn.Module
    drop_inner: nn.Dropout
    outer: nn.Linear
    drop_outer: nn.Dropout

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0, activation: str = "gelu") -> None:
        super().__init__(
            OrderedDict(
                inner=nn.Linear(d_model, d_ff),
                act=ACTIVATIONS[activation](),
                drop_inner=nn.Dropout(dropout),
                outer=nn.Linear(d_ff, d_model),
                drop_outer=nn.Dropout(dropout),
            )
        )


class AttentionBlock(nn.Module):
    """Self-attention and feed-forward.

    ``norm="pre"``: x + Drop(MHA(LN x)), then x + FFN(LN x). ``norm="post"``: LN(x + Drop(MHA x)), then LN(x + FFN x).
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        d_ff: int,
        dropout: float = 0.0,
        *,
        norm: str = "pre",
        causal: int = False,
        drop_output: bool = True,
        activation: str = "gelu",
    ) -> None:
        """Build the block.

        Args:
            d_model: width of tokens.
            heads: number of attention heads.
            d_ff: inner width of the feed-forward layer.
            dropout: of attention weights, both feed-forward outputs and (``drop_output``) the attention's output.
            norm: ``pre`` or ``post``.
            causal: tokens per time step for causal masking; 0 for none.
            drop_output: apply dropout to the attention output.
            activation: activation of the feed-forward layer.
        """
        super().__init__()
        if norm not in ("pre", "post"):
            raise OptionError(unknown_choice("norm", norm, ("pre", "post")))
        self.pre, self.causal = norm == "pre", causal
        self.attention = MultiHeadAttention(d_model, heads, dropout)
        self.drop = nn.Dropout(dropout if drop_output else 0.0)
        self.feed_forward = FeedForward(d_model, d_ff, dropout, activation)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)

    def forward(self, x: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        """Apply the block."""
        if self.pre:
            x = x + self.drop(self.attention(self.norm1(x), causal=self.causal))
            return x + self.feed_forward(self.norm2(x))
        x = self.norm1(x + self.drop(self.attention(x, causal=self.causal)))
        return self.norm2(x + self.feed_forward(x))


class ProjectionBlock(nn.Module):
    """u = LN(x + GELU(A x)), then LN(u + FFN u), token-wise; A has no bias and no dropout."""

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.projection = nn.Linear(d_model, d_model, bias=False)
        self.norm1 = nn.LayerNorm(d_model)
        self.feed_forward = FeedForward(d_model, d_ff, dropout)
        self.norm2 = nn.LayerNorm(d_model)

    def forward(self, x: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        """Apply the block token-wise."""
        x = self.norm1(x + F.gelu(self.projection(x)))
        return self.norm2(x + self.feed_forward(x))


class DecoderBlock(nn.Module):
    """Causal self-attention, cross-attention and feed-forward, each with add & norm (Vaswani et al. 2017, 3.1).

    Equivalent to ``nn.TransformerDecoderLayer``.
    """

    def __init__(self, d_model: int, heads: int, d_ff: int, dropout: float = 0.0, *, causal: bool = True) -> None:
        """Build the block.

        Args:
            d_model: width of tokens.
            heads: heads of both attentions.
            d_ff: inner width of the feed-forward layer.
            dropout: of attention weights, of the feed-forward layer's inner values, and of each sublayer's output.
            causal: mask future tokens.
        """
        super().__init__()
        self.causal = causal
        self.attention = MultiHeadAttention(d_model, heads, dropout)
        self.cross_attention = MultiHeadAttention(d_model, heads, dropout)
        self.feed_forward = FeedForward(d_model, d_ff, dropout, "relu")
        self.norm1 = AddNorm(d_model, dropout)
        self.norm2 = AddNorm(d_model, dropout)
        # the feed-forward layer drops its output itself
        self.norm3 = AddNorm(d_model)

    def forward(
        self, x: Float[Tensor, "batch tokens d_model"], memory: Float[Tensor, "batch source d_model"]
    ) -> Float[Tensor, "batch tokens d_model"]:
        """Apply the block.

        Args:
            x: decoder tokens.
            memory: encoder outputs.
        """
        x = self.norm1(x, lambda u: self.attention(u, causal=self.causal))
        x = self.norm2(x, lambda u: self.cross_attention(u, memory))
        return self.norm3(x, self.feed_forward)
