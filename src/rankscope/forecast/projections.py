"""Linear maps as the runtime applies them: those of one input in one product, weights shared with the stock module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from rankscope.forecast.products import Product
from rankscope.lowrank import FactoredLinear


def is_dense(layer: nn.Module) -> bool:
    """Whether a layer is one stored matrix without a bias."""
    return type(layer) is nn.Linear and layer.bias is None


def is_factored(layer: Any) -> bool:
    """Whether a layer is two thin dense matrices without a bias, shared by all heads."""
    return (
        isinstance(layer, FactoredLinear) and layer.layout.heads is None and is_dense(layer.down) and is_dense(layer.up)
    )


class Projections:
    """Several linear maps of the same input.

    Dense ones are one product; of factored ones the inner factors are one product. Anything else (heads with factors of
    their own, quantised storage) is called as it is.

    Args:
        layers: of the stock module, in the order of the answers.
        latent: whether a factored layer answers with its latent, ``down·x``; none does by default.
    """

    def __init__(self, layers: Sequence[Any], latent: Sequence[bool] | None = None) -> None:
        self.layers: tuple[Any, ...] = ()
        self.ups: tuple[Product | None, ...] = ()
        self.fused: Product | None = None
        stops = latent or [False] * len(layers)
        if all(is_dense(layer) for layer in layers):
            self.fused = Product(layers)
        elif all(is_factored(layer) for layer in layers):
            self.fused = Product([layer.down for layer in layers])
            pairs = zip(layers, stops, strict=True)
            self.ups = tuple(None if stop else Product([layer.up]) for layer, stop in pairs)
        else:
            pairs = zip(layers, stops, strict=True)
            self.layers = tuple(layer.down if stop else layer for layer, stop in pairs)

    def __call__(self, x: Float[Tensor, "*batch d_in"]) -> tuple[Float[Tensor, "*batch _"], ...]:
        """Apply all of them."""
        if self.fused is None:
            return tuple(layer(x) for layer in self.layers)
        whole = self.fused(x.to(self.fused.dtype))
        widths = self.fused.widths
        parts = whole.split(widths, dim=-1) if len(widths) > 1 else (whole,)
        if not self.ups:
            return parts
        return tuple(part if up is None else up(part) for part, up in zip(parts, self.ups, strict=True))

    def relu(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """Apply the only map; what is below zero becomes zero."""
        if self.fused is None:
            found: Tensor = self.layers[0](x)
            return found.relu_()
        x = x.to(self.fused.dtype)
        up = self.ups[0] if self.ups else None
        return self.fused.relu(x) if up is None else up.relu(self.fused(x))

    def add(self, x: Float[Tensor, "rows d_out"], of: Float[Tensor, "rows d_in"]) -> Float[Tensor, "rows d_out"]:
        """Add the only map's answer to ``x``, in place where formats allow."""
        if self.fused is None or self.fused.dtype != x.dtype or of.dtype != x.dtype:
            return x + self(of)[0]
        up = self.ups[0] if self.ups else None
        return self.fused.add(x, of) if up is None else up.add(x, self.fused(of))
