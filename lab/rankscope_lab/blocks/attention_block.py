"""A transformer block: attention, then feed-forward, each with a residual and a LayerNorm."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor, nn

from rankscope.errors import OptionError, unknown_choice
from rankscope_lab.blocks.add_norm import NORMS
from rankscope_lab.blocks.attention import MultiHeadAttention
from rankscope_lab.blocks.feed_forward import FeedForward


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
            heads: of the attention.
            d_ff: inner width of the feed-forward layer.
            dropout: of attention weights, both feed-forward outputs and (``drop_output``) the attention's output.
            norm: ``pre`` or ``post``.
            causal: tokens of a time step, of which none looks at a later one; 0: all look at all.
            drop_output: whether dropout acts on the attention's output.
            activation: of the feed-forward layer.
        """
        super().__init__()
        if norm not in NORMS:
            raise OptionError(unknown_choice("norm", norm, NORMS))
        self.pre, self.causal = norm == "pre", causal
        self.attention = MultiHeadAttention(d_model, heads, dropout)
        self.drop = nn.Dropout(dropout if drop_output else 0.0)
        self.feed_forward = FeedForward(d_model, d_ff, dropout, activation)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)

    def forward(
        self, x: Float[Tensor, "batch tokens d_model"], mask: Bool[Tensor, "*#axes #queries #keys"] | None = None
    ) -> Float[Tensor, "batch tokens d_model"]:
        """Pass tokens on; ``mask`` is true where a token may look at another."""
        if self.pre:
            x = x + self.drop(self.attention(self.norm1(x), mask=mask, causal=self.causal))
            return x + self.feed_forward(self.norm2(x))
        x = self.norm1(x + self.drop(self.attention(x, mask=mask, causal=self.causal)))
        return self.norm2(x + self.feed_forward(x))
