"""A linear layer whose weight is whole numbers, one scale per row."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.numerics.quantise import Quantised, rounded_rows


class Int8Linear(nn.Module):
    """y = diag(scale)·W x + b with ``weight`` in int8 (d_out, d_in) and ``weight_scale`` (d_out,).

    It computes in the format of its scales, which is the model's, and takes inputs of any. Weights are not trained.

    >>> layer = Int8Linear(nn.Linear(8, 6))
    >>> layer(torch.ones(3, 8)).shape, layer.weight.dtype, sorted(layer.state_dict())
    (torch.Size([3, 6]), torch.int8, ['bias', 'weight', 'weight_scale'])

    Args:
        linear: the layer whose place it takes, rounded.
    """

    weight_scale: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        rounded = rounded_rows(linear.weight)
        self.weight = nn.Parameter(rounded.values, requires_grad=False)
        self.register_buffer("weight_scale", rounded.scale.to(linear.weight.dtype))
        self.bias = linear.bias

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """Multiply by the whole numbers, then by the scales: a row has one, and so has its output."""
        dtype = self.weight_scale.dtype
        if dtype == torch.float16:  # sums of whole numbers would leave its range
            return nn.functional.linear(x.to(dtype), self.dense(), self.bias)
        out = nn.functional.linear(x.to(dtype), self.weight.to(dtype)) * self.weight_scale
        return out if self.bias is None else out + self.bias

    def dense(self) -> Float[Tensor, "d_out d_in"]:
        """The matrix that this layer applies, in the format of its scales."""
        return Quantised(self.weight, self.weight_scale).dense(self.weight_scale.dtype)

    def to_linear(self) -> nn.Linear:
        """A trainable layer of the same matrix and bias."""
        weight = self.dense()
        with torch.device("meta"):
            linear = nn.Linear(self.in_features, self.out_features, bias=False, dtype=weight.dtype)
        linear.weight = nn.Parameter(weight)
        linear.bias = self.bias
        return linear

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def applied_weight(layer: nn.Module) -> Float[Tensor, "d_out d_in"]:
    """The matrix of a linear layer, whichever way it is stored."""
    return layer.dense() if isinstance(layer, Int8Linear) else layer.weight  # type: ignore[return-value]


def applied_dtype(layer: nn.Module) -> torch.dtype:
    """The format that a linear layer computes in."""
    return (layer.weight_scale if isinstance(layer, Int8Linear) else layer.weight).dtype  # type: ignore[return-value]
