"""The feed-forward layer of a transformer."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

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
