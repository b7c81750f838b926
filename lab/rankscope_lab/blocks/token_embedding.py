"""The embedding of tokens, on the scale of the positions that are added to it."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn


class TokenEmbedding(nn.Module):
    """√d_model times a learned row per token.

    Rows are drawn from N(0, 1/d_model), so that tokens begin with components of variance 1, about what sinusoidal
    positions have (1/2). Source: Vaswani et al. 2017, section 3.4.
    """

    def __init__(self, vocabulary: int, d_model: int) -> None:
        super().__init__()
        self.scale = d_model**0.5
        self.table = nn.Embedding(vocabulary, d_model)
        nn.init.normal_(self.table.weight, std=d_model**-0.5)

    def forward(self, ids: Int[Tensor, "batch tokens"]) -> Float[Tensor, "batch tokens d_model"]:
        """Look tokens up."""
        return self.table(ids) * self.scale
