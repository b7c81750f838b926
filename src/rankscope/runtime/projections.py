"""Linear maps as the runtime applies them: those of one input in one product, weights shared with the stock module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.lowrank import FactoredLinear


def is_dense(layer: nn.Module) -> bool:
    """Whether a layer is one stored matrix without a bias."""
    return type(layer) is nn.Linear and layer.bias is None


def is_factored(layer: Any) -> bool:
    """Whether a layer is two thin dense matrices without a bias, shared by all heads."""
    return (
        isinstance(layer, FactoredLinear) and layer.layout.heads is None and is_dense(layer.down) and is_dense(layer.up)
    )


def stacked(layers: Sequence[Any]) -> Float[Tensor, "d_out_all d_in"]:
    """Lay the matrices of dense layers below each other; from now on the layers' own weights are parts of it.

    So nothing is stored twice, and the layers still answer, save and move as before.
    """
    weights: list[Tensor] = [layer.weight.detach() for layer in layers]
    if len(weights) == 1:
        return weights[0]
    whole = torch.cat(weights)
    for layer, part in zip(layers, whole.split([len(weight) for weight in weights]), strict=True):
        layer.weight.data = part
    return whole


class Projections:
    """Several linear maps of the same input.

    Dense ones are one product; of factored ones the inner factors are one product. Anything else (heads with factors of
    their own, quantised storage) is called as it is.

    Args:
        layers: of the stock module, in the order of the answers.
        latent: whether a factored layer answers with its latent, ``down·x``; none does by default.
    """

    def __init__(self, layers: Sequence[Any], latent: Sequence[bool] | None = None) -> None:
        self.widths: list[int] = []
        self.layers: tuple[Any, ...] = ()
        self.ups: tuple[Tensor | None, ...] = ()
        self.fused: Tensor | None = None
        stops = latent or [False] * len(layers)
        if all(is_dense(layer) for layer in layers):
            self.fused = stacked(layers)
            self.widths = [int(layer.weight.shape[0]) for layer in layers]
        elif all(is_factored(layer) for layer in layers):
            self.fused = stacked([layer.down for layer in layers])
            pairs = zip(layers, stops, strict=True)
            self.ups = tuple(None if stop else layer.up.weight.detach() for layer, stop in pairs)
            self.widths = [int(layer.rank) for layer in layers]
        else:
            pairs = zip(layers, stops, strict=True)
            self.layers = tuple(layer.down if stop else layer for layer, stop in pairs)

    def __call__(self, x: Float[Tensor, "*batch d_in"]) -> tuple[Float[Tensor, "*batch _"], ...]:
        """Apply all of them."""
        if self.fused is None:
            return tuple(layer(x) for layer in self.layers)
        whole = nn.functional.linear(x.to(self.fused.dtype), self.fused)
        parts = whole.split(self.widths, dim=-1) if len(self.widths) > 1 else (whole,)
        if not self.ups:
            return parts
        pairs = zip(parts, self.ups, strict=True)
        return tuple(part if up is None else nn.functional.linear(part, up) for part, up in pairs)

    def add(self, x: Float[Tensor, "rows d_out"], of: Float[Tensor, "rows d_in"]) -> Float[Tensor, "rows d_out"]:
        """Add the only map's answer to ``x``, in place where formats allow."""
        if self.fused is None or self.fused.dtype != x.dtype or of.dtype != x.dtype:
            return x + self(of)[0]
        up = self.ups[0] if self.ups else None
        if up is not None:
            return x.addmm_(nn.functional.linear(of, self.fused), up.t())
        return x.addmm_(of, self.fused.t())
