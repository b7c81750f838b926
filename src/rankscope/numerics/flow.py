"""Flow of ranks: how ε-ranks change with depth (Q5)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankscope.numerics.rank import eps_ranks


def flow_of_ranks(spectra: Sequence[Float[Tensor, " _"]], eps: Sequence[float]) -> Int[Tensor, "layers eps"]:
    """ε-ranks of every layer, from one spectrum per layer; the spectra may differ in length.

    >>> flow_of_ranks([torch.tensor([1.0, 0.2]), torch.tensor([1.0, 0.5, 0.4])], [0.3, 0.1]).tolist()
    [[1, 2], [3, 3]]
    """
    if not spectra:
        return torch.zeros((0, len(eps)), dtype=torch.int64)
    return torch.stack([eps_ranks(sigma, eps).cpu() for sigma in spectra])


def mean_by_role(roles: Sequence[str], ranks: Int[Tensor, "items eps"]) -> dict[str, Float[Tensor, " eps"]]:
    """Mean ε-ranks of each role's items, in order of first appearance (Fig. 4a,b average W_Q over layers).

    >>> mean_by_role(["self.q", "self.k", "self.q"], torch.tensor([[2], [5], [4]]))["self.q"].tolist()
    [3.0]
    """
    return {
        role: ranks[[i for i, other in enumerate(roles) if other == role]].to(torch.float64).mean(0)
        for role in dict.fromkeys(roles)
    }
