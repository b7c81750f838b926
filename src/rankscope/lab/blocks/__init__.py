"""Building blocks of time-series transformers, one file per noun, as plain modules."""

from rankscope.lab.blocks.add_norm import AddNorm
from rankscope.lab.blocks.attention import (
    MultiHeadAttention,
    attention_weights,
    causal_mask,
    fused_dot_product,
    scaled_dot_product,
)
from rankscope.lab.blocks.attention_block import AttentionBlock
from rankscope.lab.blocks.decoder_block import DecoderBlock
from rankscope.lab.blocks.feed_forward import FeedForward
from rankscope.lab.blocks.padding import key_padding_mask
from rankscope.lab.blocks.patching import patch_count, patches
from rankscope.lab.blocks.positions import LearnedPositions, MultiplicativePositions, SinusoidalPositions, sinusoid
from rankscope.lab.blocks.projection_block import ProjectionBlock
from rankscope.lab.blocks.token_embedding import TokenEmbedding

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
    "key_padding_mask",
    "patch_count",
    "patches",
    "scaled_dot_product",
    "sinusoid",
]
