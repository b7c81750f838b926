"""Matrix products in the way that is fastest where they run.

On a CPU torch multiplies float32 matrices by the library it was built with, which on some processors leaves their
widest vectors unused; oneDNN's products, which torch carries for its compiler, use them, and take a ReLU or a sum
along. They are used where they are found and give the right answer, else torch's own are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


@cache
def has_onednn(dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies matrices of this format here."""
    if dtype not in (torch.float32, torch.bfloat16) or not torch.backends.mkldnn.is_available():
        return False
    try:
        if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return False
        x, weight = torch.eye(2, dtype=dtype), torch.tensor([[1.0, -2.0], [3.0, 4.0]], dtype=dtype)
        plain, packed = weight.t().contiguous().t(), torch.ops.mkldnn._reorder_linear_weight(weight)
        found = [_pointwise(x, plain, "none"), _pointwise(x, packed, "none"), _added(x, torch.zeros_like(x), plain)]
        return all(torch.equal(one, weight.t()) for one in found) and bool((_pointwise(x, plain, "relu") >= 0).all())
    except (RuntimeError, AttributeError, TypeError, NotImplementedError):  # another torch than those it was tried with
        return False


def _pointwise(x: Tensor, weight: Tensor, then: str) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, None, then, [], "")
    return found


def _added(x: Tensor, to: Tensor, weight: Tensor) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, to, weight, None, "add")
    return found


def multiply(x: Float[Tensor, "*batch d_in"], weight: Float[Tensor, "d_out d_in"]) -> Float[Tensor, "*batch d_out"]:
    """Multiply by a transposed matrix, x·Wᵀ, in the way that is fastest here."""
    if x.device.type == "cpu" and has_onednn(x.dtype):
        return _pointwise(x, weight, "none")
    return nn.functional.linear(x, weight)


class Product:
    """x ↦ W x, for the matrices of dense layers laid below each other.

    Args:
        layers: of the stock module. Their weights become parts of one matrix, so that nothing is stored twice and the
            layers still answer, save and move as before.
        packed: keep the one layer as it is, and on a CPU a copy of its weight in oneDNN's own order.
    """

    def __init__(self, layers: Sequence[Any], *, packed: bool = False) -> None:
        weight: Tensor = layers[0].weight.detach()
        self.widths = [int(layer.weight.shape[0]) for layer in layers]
        self.dtype = weight.dtype
        self.onednn = weight.device.type == "cpu" and has_onednn(weight.dtype)
        self.weight = weight if packed else stacked(layers, columns_first=self.onednn)
        self._order = torch.ops.mkldnn._reorder_linear_weight(weight) if packed and self.onednn else self.weight

    def __call__(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out_all"]:
        """Multiply."""
        return _pointwise(x, self._order, "none") if self.onednn else nn.functional.linear(x, self.weight)

    def relu(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out_all"]:
        """Multiply; what is below zero becomes zero."""
        return _pointwise(x, self._order, "relu") if self.onednn else nn.functional.linear(x, self.weight).relu_()

    def add(self, x: Float[Tensor, "rows d_out"], of: Float[Tensor, "rows d_in"]) -> Float[Tensor, "rows d_out"]:
        """Add the product with ``of`` to ``x``, which may be written to."""
        return _added(of, x, self._order) if self.onednn else x.addmm_(of, self.weight.t())


def stacked(layers: Sequence[Any], *, columns_first: bool) -> Float[Tensor, "d_out_all d_in"]:
    """Lay the matrices of dense layers below each other; from now on the layers' own weights are parts of the whole.

    Args:
        layers: dense layers of the same input.
        columns_first: keep the numbers of a column together, which oneDNN multiplies faster by few rows. Several
            layers keep their rows, because transformers saves no tensors that share memory in any other order.
    """
    weights: list[Tensor] = [layer.weight.detach() for layer in layers]
    whole = torch.cat(weights) if len(weights) > 1 else weights[0]
    if columns_first and len(weights) == 1:
        whole = whole.t().contiguous().t()
    for layer, part in zip(layers, whole.split([len(weight) for weight in weights]), strict=True):
        layer.weight.data = part
    return whole
