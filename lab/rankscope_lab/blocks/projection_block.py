"""The projection block of Sparse-Layered Transformers: a linear map and an activation where attention would be."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from rankscope_lab.blocks.feed_forward import FeedForward


class ProjectionBlock(nn.Module):
    """u = LN(x + GELU(A x)), then LN(u + FFN u); A has no bias and no dropout. Tokens never see one another."""

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.projection = nn.Linear(d_model, d_model, bias=False)
        self.norm1 = nn.LayerNorm(d_model)
        self.feed_forward = FeedForward(d_model, d_ff, dropout)
        self.norm2 = nn.LayerNorm(d_model)

    def forward(self, x: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        """Pass tokens on, each for itself."""
        x = self.norm1(x + F.gelu(self.projection(x)))
        return self.norm2(x + self.feed_forward(x))
