"""Building blocks of time-series transformers as plain modules."""

from rankscope_lab.blocks.attention import (
    MultiHeadAttention,
    attention_weights,
    causal_mask,
    fused_dot_product,
    scaled_dot_product,
)
from rankscope_lab.blocks.embeddings import (
    LearnedPositions,
    MultiplicativePositions,
    SinusoidalPositions,
    TokenEmbedding,
    patch_count,
    patches,
    sinusoid,
)
from rankscope_lab.blocks.layers import AddNorm, AttentionBlock, DecoderBlock, FeedForward, ProjectionBlock

__all__ = [
    "AddNorm",
    "AttentionBlock",
    "DecoderBlock",
    "FeedForward",
    "LearnedPositions",
    "MultiHeadAttention",
    "MultiplicativePositions",
    "ProjectionBlock",
    "SinusoidalPositions",
    "TokenEmbedding",
    "attention_weights",
    "causal_mask",
    "fused_dot_product",
    "patch_count",
    "patches",
    "scaled_dot_product",
    "sinusoid",
]
