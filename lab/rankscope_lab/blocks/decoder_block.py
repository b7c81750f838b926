"""A block of a decoder: attention to itself, attention to the encoder's output, feed-forward."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor, nn

from rankscope_lab.blocks.add_norm import AddNorm
from rankscope_lab.blocks.attention import MultiHeadAttention
from rankscope_lab.blocks.feed_forward import FeedForward


class DecoderBlock(nn.Module):
    """Causal self-attention, cross-attention, feed-forward, each followed by add & norm (Vaswani et al. 2017, 3.1).

    The layer computes what ``nn.TransformerDecoderLayer`` does.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        d_ff: int,
        dropout: float = 0.0,
        *,
        causal: bool = True,
        activation: str = "relu",
    ) -> None:
        """Build the block.

        Args:
            d_model: width of tokens.
            heads: of both attentions.
            d_ff: inner width of the feed-forward layer.
            dropout: of attention weights, of the feed-forward layer's inner values, and of each sublayer's output.
            causal: no token looks at a later one.
            activation: of the feed-forward layer.
        """
        super().__init__()
        self.causal = causal
        self.attention = MultiHeadAttention(d_model, heads, dropout)
        self.cross_attention = MultiHeadAttention(d_model, heads, dropout)
        self.feed_forward = FeedForward(d_model, d_ff, dropout, activation)
        self.norm1 = AddNorm(d_model, dropout)
        self.norm2 = AddNorm(d_model, dropout)
        # the feed-forward layer drops its output itself
        self.norm3 = AddNorm(d_model)

    def forward(
        self,
        x: Float[Tensor, "batch tokens d_model"],
        memory: Float[Tensor, "batch source d_model"],
        source_mask: Bool[Tensor, "*#axes #tokens #source"] | None = None,
    ) -> Float[Tensor, "batch tokens d_model"]:
        """Pass tokens on.

        Args:
            x: the decoder's tokens.
            memory: what the encoder put out.
            source_mask: true where a token may look at a token of the encoder.
        """
        x = self.norm1(x, lambda u: self.attention(u, causal=self.causal))
        x = self.norm2(x, lambda u: self.cross_attention(u, memory, mask=source_mask))
        return self.norm3(x, self.feed_forward)
