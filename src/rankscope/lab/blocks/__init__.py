"""Building blocks of time-series transformers, one file per noun, as plain modules."""

from rankscope.lab.blocks.attention import (
    MultiHeadAttention,
    attention_weights,
    fused_dot_product,
    scaled_dot_product,
)
from rankscope.lab.blocks.attention_block import AttentionBlock
from rankscope.lab.blocks.feed_forward import FeedForward
from rankscope.lab.blocks.patching import patch_count, patches
from rankscope.lab.blocks.positions import LearnedPositions, MultiplicativePositions, SinusoidalPositions, sinusoid
from rankscope.lab.blocks.projection_block import ProjectionBlock

__all__ = [
    "AttentionBlock",
    "FeedForward",
    "LearnedPositions",
    "MultiHeadAttention",
    "MultiplicativePositions",
    "ProjectionBlock",
    "SinusoidalPositions",
    "attention_weights",
    "fused_dot_product",
    "patch_count",
    "patches",
    "scaled_dot_product",
    "sinusoid",
]
