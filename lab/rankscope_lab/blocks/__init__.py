"""Building blocks of time-series transformers, one file per noun, as plain modules."""

from rankscope_lab.blocks.add_norm import AddNorm
from rankscope_lab.blocks.attention import (
    MultiHeadAttention,
    attention_weights,
    causal_mask,
    fused_dot_product,
    scaled_dot_product,
)
from rankscope_lab.blocks.attention_block import AttentionBlock
from rankscope_lab.blocks.decoder_block import DecoderBlock
from rankscope_lab.blocks.feed_forward import FeedForward
from rankscope_lab.blocks.padding import key_padding_mask
from rankscope_lab.blocks.patching import patch_count, patches
from rankscope_lab.blocks.positions import LearnedPositions, MultiplicativePositions, SinusoidalPositions, sinusoid
from rankscope_lab.blocks.projection_block import ProjectionBlock
from rankscope_lab.blocks.token_embedding import TokenEmbedding

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
