"""Add & norm: the residual around a sublayer, and the LayerNorm that goes with it."""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from rankscope.errors import OptionError, unknown_choice

NORMS = ("pre", "post")


class AddNorm(nn.Module):
    """``norm="post"``: LN(x + Drop(F x)), as in the first transformers; ``norm="pre"``: x + Drop(F(LN x)).

    LN u = γ ⊙ (u − mean u) / √(var u + 1e-5) + b, mean and population variance over the features of each token.
    """

    def __init__(self, d_model: int, dropout: float = 0.0, *, norm: str = "post") -> None:
        super().__init__()
        if norm not in NORMS:
            raise OptionError(unknown_choice("norm", norm, NORMS))
        self.pre = norm == "pre"
        self.norm = nn.LayerNorm(d_model)
        self.drop = nn.Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "batch tokens d_model"], sublayer: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "batch tokens d_model"]:
        """Run ``sublayer`` on tokens and add what comes of it to them."""
        if self.pre:
            return x + self.drop(sublayer(self.norm(x)))
        return self.norm(x + self.drop(sublayer(x)))
