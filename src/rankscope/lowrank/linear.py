"""A linear layer that stores W as up·down."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.errors import OptionError


class FactoredLinear(nn.Module):
    """y = up(down(x)) with ``down`` (rank, d_in) and ``up`` (d_out, rank): W ≈ up·down (eq. 20).

    It stores rank·(d_in + d_out) numbers in place of d_in·d_out; a bias, if any, belongs to ``up``.

    >>> layer = FactoredLinear(8, 6, rank=2)
    >>> layer(torch.ones(3, 8)).shape, sum(p.numel() for p in layer.parameters())
    (torch.Size([3, 6]), 28)

    Raises:
        OptionError: the rank is below 1 or above min(d_in, d_out).
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        rank: int,
        *,
        bias: bool = False,
        init_std: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not 1 <= rank <= min(d_in, d_out):
            raise OptionError(f"rank {rank} is outside 1…{min(d_in, d_out)} for a {d_out}×{d_in} matrix.")
        self.in_features, self.out_features, self.rank = d_in, d_out, rank
        self.init_std = d_in**-0.5 if init_std is None else init_std
        self.down = nn.Linear(d_in, rank, bias=False, device=device, dtype=dtype)
        self.up = nn.Linear(rank, d_out, bias=bias, device=device, dtype=dtype)

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """Apply the two thin maps one after the other."""
        return self.up(self.down(x))

    def dense(self) -> Float[Tensor, "d_out d_in"]:
        """Multiply the factors out: the matrix this layer applies."""
        return self.up.weight @ self.down.weight

    @property
    def weight(self) -> Float[Tensor, "d_out d_in"]:
        """A stand-in with the dense shape and dtype but no data (device ``meta``); `dense` gives the numbers.

        T5 reads ``wo.weight.dtype`` at every call and stock initialisers write into ``q.weight``: the first
        needs no product, the second must not reach the factors.
        """
        return torch.empty(self.out_features, self.in_features, dtype=self.up.weight.dtype, device="meta")

    @property
    def bias(self) -> Tensor | None:
        """The bias of ``up``, or None."""
        return self.up.bias

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        return f"in_features={self.in_features}, out_features={self.out_features}, rank={self.rank}"
