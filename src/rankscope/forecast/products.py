"""Fused linear layers: one matmul for all maps of the same input, sharing weights with the stock module.

On a CPU, torch's default float32 matmul library does not use the widest vector units of some processors. oneDNN's
matmuls, which torch ships for its compiler, do, and can fuse a ReLU or a sum, but compile and keep a program for every
shape. They are used if available and verified to be correct, in float32 only where a shape returns step after step; in
bfloat16 torch's own are oneDNN's, too. The fallback is torch's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.lowrank import FactoredLinear


@cache
def has_onednn(dtype: torch.dtype) -> bool:
    """Return whether oneDNN matmuls work for this dtype on this machine."""
    if dtype not in (torch.float32, torch.bfloat16) or not torch.backends.mkldnn.is_available():
        return False
    try:
        if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return False
        x, weight = torch.eye(2, dtype=dtype), torch.tensor([[1.0, -2.0], [3.0, 4.0]], dtype=dtype)
        plain, packed = weight.t().contiguous().t(), torch.ops.mkldnn._reorder_linear_weight(weight)
        found = [_pointwise(x, plain, "none"), _pointwise(x, packed, "none"), _added(x, torch.zeros_like(x), plain)]
        return all(torch.equal(one, weight.t()) for one in found) and bool((_pointwise(x, plain, "relu") >= 0).all())
    except (
        RuntimeError,
        AttributeError,
        TypeError,
        NotImplementedError,
    ):  # missing or different in other torch versions
        return False


def _pointwise(x: Tensor, weight: Tensor, then: str) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, None, then, [], "")
    return found


def _added(x: Tensor, to: Tensor, weight: Tensor) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, to, weight, None, "add")
    return found


def multiply(x: Float[Tensor, "*batch d_in"], weight: Float[Tensor, "d_out d_in"]) -> Float[Tensor, "*batch d_out"]:
    """Compute x·Wᵀ with the fastest available implementation."""
    if x.device.type == "cpu" and has_onednn(x.dtype):
        return _pointwise(x, weight, "none")
    return nn.functional.linear(x, weight)


class Product:
    """Product W x with the stacked matrices of dense layers.

    Args:
        layers: layers of the stock module. Their weights become views of one matrix, or are reordered, so nothing is
            stored twice. They still run and move; ``save_pretrained`` saves them, safetensors' own functions refuse.
        repeated: called with one number of rows many times, as in the steps of a decoder.
        packed: leave the single layer unchanged and, on a CPU, keep a copy of its weight in oneDNN's layout.
    """

    def __init__(self, layers: Sequence[Any], *, repeated: bool, packed: bool = False) -> None:
        weight: Tensor = layers[0].weight.detach()
        self.widths = [int(layer.weight.shape[0]) for layer in layers]
        self.dtype = weight.dtype
        pays = repeated or weight.dtype != torch.float32
        self.onednn = pays and weight.device.type == "cpu" and has_onednn(weight.dtype)
        self.weight = weight if packed else stacked(layers, columns_first=self.onednn)
        self._order = torch.ops.mkldnn._reorder_linear_weight(weight) if packed and self.onednn else self.weight

    def __call__(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out_all"]:
        """Multiply."""
        return _pointwise(x, self._order, "none") if self.onednn else nn.functional.linear(x, self.weight)

    def relu(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out_all"]:
        """Multiply and apply ReLU."""
        return _pointwise(x, self._order, "relu") if self.onednn else nn.functional.linear(x, self.weight).relu_()

    def add(self, x: Float[Tensor, "rows d_out"], of: Float[Tensor, "rows d_in"]) -> Float[Tensor, "rows d_out"]:
        """Add the product with ``of`` to ``x``, possibly in place."""
        return _added(of, x, self._order) if self.onednn else x.addmm_(of, self.weight.t())


def stacked(layers: Sequence[Any], *, columns_first: bool) -> Float[Tensor, "d_out_all d_in"]:
    """Stack the matrices of dense layers and turn the layers' weights into views of the result.

    Args:
        layers: dense layers with the same input.
        columns_first: store column-major, which is faster in oneDNN for few rows. Several layers stay row-major, since
            transformers cannot save tensors that share memory in any other order.
    """
    weights: list[Tensor] = [layer.weight.detach() for layer in layers]
    whole = torch.cat(weights) if len(weights) > 1 else weights[0]
    if columns_first and len(weights) == 1:
        whole = whole.t().contiguous().t()
    for layer, part in zip(layers, whole.split([len(weight) for weight in weights]), strict=True):
        layer.weight.data = part
    return whole


def is_dense(layer: nn.Module) -> bool:
    """Return whether a layer is a single dense matrix without bias."""
    return type(layer) is nn.Linear and layer.bias is None


def is_factored(layer: Any) -> bool:
    """Return whether a layer is two dense low-rank factors without bias, shared by all heads."""
    return (
        isinstance(layer, FactoredLinear) and layer.layout.heads is None and is_dense(layer.down) and is_dense(layer.up)
    )


class Projections:
    """Several linear maps of the same input, fused where possible.

    Dense layers become one product, and so do the inner factors of factored layers. Other layers (per-head factors,
    quantised storage) are called directly.

    Args:
        layers: layers of the stock module, in the order of the outputs.
        latent: for each layer, return the latent ``down·x`` of a factored layer (default: none).
        repeated: see `Product`.
    """

    def __init__(self, layers: Sequence[Any], latent: Sequence[bool] | None = None, *, repeated: bool) -> None:
        self.layers: tuple[Any, ...] = ()
        self.ups: tuple[Product | None, ...] = ()
        self.fused: Product | None = None
        stops = latent or [False] * len(layers)
        if all(is_dense(layer) for layer in layers):
            self.fused = Product(layers, repeated=repeated)
        elif all(is_factored(layer) for layer in layers):
            self.fused = Product([layer.down for layer in layers], repeated=repeated)
            pairs = zip(layers, stops, strict=True)
            self.ups = tuple(None if stop else Product([layer.up], repeated=repeated) for layer, stop in pairs)
        else:
            pairs = zip(layers, stops, strict=True)
            self.layers = tuple(layer.down if stop else layer for layer, stop in pairs)

    def __call__(self, x: Float[Tensor, "*batch d_in"]) -> tuple[Float[Tensor, "*batch _"], ...]:
        """Apply all maps."""
        if self.fused is None:
            return tuple(layer(x) for layer in self.layers)
        whole = self.fused(x.to(self.fused.dtype))
        widths = self.fused.widths
        parts = whole.split(widths, dim=-1) if len(widths) > 1 else (whole,)
        if not self.ups:
            return parts
        return tuple(part if up is None else up(part) for part, up in zip(parts, self.ups, strict=True))

    def relu(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """Apply the only map, followed by ReLU."""
        if self.fused is None:
            found: Tensor = self.layers[0](x)
            return found.relu_()
        x = x.to(self.fused.dtype)
        up = self.ups[0] if self.ups else None
        return self.fused.relu(x) if up is None else up.relu(self.fused(x))

    def add(self, x: Float[Tensor, "rows d_out"], of: Float[Tensor, "rows d_in"]) -> Float[Tensor, "rows d_out"]:
        """Add the only map's output to ``x``, in place if the dtypes allow."""
        if self.fused is None or self.fused.dtype != x.dtype or of.dtype != x.dtype:
            return x + self(of)[0]
        up = self.ups[0] if self.ups else None
        return self.fused.add(x, of) if up is None else up.add(x, self.fused(of))
