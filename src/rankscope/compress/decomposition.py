"""A matrix as a sum of rank-1 terms in order of what they are worth: cut anywhere, it is the method's answer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.errors import OptionError
from rankscope.numerics import FactoredMatrix


@dataclass(frozen=True)
class Decomposition:
    """W ≈ up[:, :r] · down[:r] for every r at once.

    Attributes:
        sigma: worth of each term in the method's own norm, descending; the squares of those that are cut add up to
            the squared error of the methods that minimise one.
        up: (d_out, k).
        down: (k, d_in).
    """

    sigma: Float[Tensor, " k"]
    up: Float[Tensor, "d_out k"]
    down: Float[Tensor, "k d_in"]

    def at(self, rank: int, dtype: torch.dtype | None = None) -> FactoredMatrix:
        """The first ``rank`` terms, each shared evenly by both factors so that neither leaves the range of float16.

        Raises:
            OptionError: there are fewer terms.
        """
        if not 1 <= rank <= len(self.sigma):
            rows, columns = self.up.shape[0], self.down.shape[1]
            raise OptionError(f"rank {rank} is outside 1…{len(self.sigma)} for a {rows}×{columns} matrix.")
        up, down = self.up[:, :rank], self.down[:rank]
        left, right = up.norm(dim=0), down.norm(dim=1)
        even = torch.where((left > 0) & (right > 0), (right / left).sqrt(), torch.ones_like(left))
        kind = up.dtype if dtype is None else dtype
        return FactoredMatrix(
            up=(up * even).to(kind).contiguous(),
            down=(down / even[:, None]).to(kind).contiguous(),
        )
