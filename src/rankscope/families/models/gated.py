"""The point-wise gated embedding of Time-MoE: φ_i(x) = swish_β(w_i x) · v_i x."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


def swish(x: Float[Tensor, "*axes"], beta: float = 1.0) -> Float[Tensor, "*axes"]:
    """``x / (1 + exp(−βx))``; β = 1 is SiLU.

    >>> float(swish(torch.tensor(0.0)))
    0.0
    """
    return x * torch.sigmoid(beta * x)


class GatedSwish(nn.Module):
    """One value to ``d_model`` numbers, ``swish_β(w x) · v x``, without biases (Shi et al. 2025; Corollary 2).

    The names of the two weights are those of the published checkpoints: ``gate_layer`` is w, ``emb_layer`` is v.
    """

    def __init__(self, d_model: int, beta: float = 1.0) -> None:
        super().__init__()
        self.beta = beta
        self.emb_layer = nn.Linear(1, d_model, bias=False)
        self.gate_layer = nn.Linear(1, d_model, bias=False)

    def forward(self, x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes d_model"]:
        """Embed every value by itself."""
        column = x.unsqueeze(-1)
        return swish(self.gate_layer(column), self.beta) * self.emb_layer(column)
