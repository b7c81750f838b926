"""Linear layers that store a matrix as up·down (`FactoredLinear`), or as whole numbers and scales (`Int8Linear`)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.errors import OptionError
from rankscope.families import Factored
from rankscope.numerics.factored import FactoredMatrix, joined_heads
from rankscope.numerics.quantise import SCALE_DTYPE, Quantised, rounded_rows


class FactoredLinear(nn.Module):
    """y = up(down(x)) with ``down`` (rank, d_in) and ``up`` (d_out, rank): W ≈ up·down (eq. 20).

    It stores rank·(d_in + d_out) numbers in place of d_in·d_out; a bias, if any, belongs to ``up``.

    With ``heads`` every head has two factors of that rank of its own (eq. 21), which lie below or beside each other.
    Along axis 0 head i of the output is up⁽ⁱ⁾·down⁽ⁱ⁾·x, with ``up`` (d_out, rank) and ``down`` (heads·rank, d_in).
    Along axis 1 head i of the input gives up⁽ⁱ⁾·down⁽ⁱ⁾·x⁽ⁱ⁾ and the results add up, with ``up`` (d_out, heads·rank)
    and ``down`` (heads·rank, d_in/heads).

    >>> layer = FactoredLinear(8, 6, rank=2)
    >>> layer(torch.ones(3, 8)).shape, sum(p.numel() for p in layer.parameters())
    (torch.Size([3, 6]), 28)
    >>> sum(p.numel() for p in FactoredLinear(8, 6, rank=2, heads=3).parameters())
    60

    Raises:
        OptionError: the heads do not divide the axis, or the rank is below 1 or above what the matrix, or a head's
            part of it, can have.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        rank: int,
        *,
        heads: int | None = None,
        axis: int = 0,
        bias: bool = False,
        init_std: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.layout = layout = Factored(rank, heads, axis)
        if heads is not None and (d_out, d_in)[axis] % heads:
            raise OptionError(f"a {d_out}×{d_in} matrix does not split into {heads} heads along axis {axis}.")
        most = layout.largest(d_out, d_in)
        if not 1 <= rank <= most:
            part = "" if heads is None else f" of {heads} heads"
            raise OptionError(f"rank {rank} is outside 1…{most} for a {d_out}×{d_in} matrix{part}.")
        self.in_features, self.out_features, self.rank = d_in, d_out, rank
        self.init_std = d_in**-0.5 if init_std is None else init_std
        up, down = layout.shapes(d_out, d_in)
        self.down = nn.Linear(down[1], down[0], bias=False, device=device, dtype=dtype)
        self.up = nn.Linear(up[1], up[0], bias=bias, device=device, dtype=dtype)

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """Apply the two thin maps one after the other."""
        heads = self.layout.heads
        if heads is None:
            return self.up(self.down(x))
        if self.layout.axis == 1:
            split = applied_weight(self.down).unflatten(0, (heads, -1))
            return self.up(torch.einsum("...hd,hrd->...hr", x.unflatten(-1, (heads, -1)), split).flatten(-2))
        sketched = self.down(x).unflatten(-1, (heads, -1))
        out = torch.einsum("...hr,hdr->...hd", sketched, applied_weight(self.up).unflatten(0, (heads, -1))).flatten(-2)
        return out if self.bias is None else out + self.bias

    def matrix(self) -> FactoredMatrix:
        """The matrix this layer applies, in two factors."""
        heads, axis = self.layout.heads, self.layout.axis
        up, down = applied_weight(self.up), applied_weight(self.down)
        return FactoredMatrix(up, down) if heads is None else joined_heads(up, down, heads, axis)

    def dense(self) -> Float[Tensor, "d_out d_in"]:
        """Multiply the factors out: the matrix this layer applies."""
        whole = self.matrix()
        return whole.up @ whole.down

    @property
    def weight(self) -> Float[Tensor, "d_out d_in"]:
        """A stand-in with the dense shape and dtype but no data (device ``meta``); `dense` gives the numbers.

        T5 reads ``wo.weight.dtype`` at every call and stock initialisers write into ``q.weight``: the first
        needs no product, the second must not reach the factors.
        """
        return torch.empty(self.out_features, self.in_features, dtype=applied_dtype(self.up), device="meta")

    @property
    def bias(self) -> Tensor | None:
        """The bias of ``up``, or None."""
        return self.up.bias

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        heads = "" if self.layout.heads is None else f", heads={self.layout.heads}"
        return f"in_features={self.in_features}, out_features={self.out_features}, rank={self.rank}{heads}"


class Int8Linear(nn.Module):
    """y = diag(scale)·W x + b with ``weight`` in int8 (d_out, d_in) and ``weight_scale`` (d_out,).

    It computes in the format of its scales, ``dtype``, which is the model's, and takes inputs of any. Only float16 has
    its scales in bfloat16: those of small rows are below float16's range. Weights are not trained.

    >>> layer = Int8Linear(nn.Linear(8, 6))
    >>> layer(torch.ones(3, 8)).shape, layer.weight.dtype, sorted(layer.state_dict())
    (torch.Size([3, 6]), torch.int8, ['bias', 'weight', 'weight_scale'])

    Args:
        linear: the layer whose place it takes, rounded.
    """

    weight_scale: Tensor
    _like: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        rounded = rounded_rows(linear.weight)
        self.weight = nn.Parameter(rounded.values, requires_grad=False)
        kind = linear.weight.dtype
        self.register_buffer("weight_scale", rounded.scale.to(SCALE_DTYPE if kind == torch.float16 else kind))
        self.register_buffer("_like", linear.weight.detach().new_empty(0), persistent=False)  # is cast with the model
        self.bias = linear.bias

    @property
    def dtype(self) -> torch.dtype:
        """The format that it computes in."""
        kind = self.weight_scale.dtype
        if kind != SCALE_DTYPE:
            return kind
        return self._like.dtype if self.bias is None else self.bias.dtype  # what is assigned leaves a buffer behind

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Int8Linear:
        scale = self.weight_scale
        super()._apply(fn, recurse)
        if self.weight_scale.dtype == torch.float16:
            self.weight_scale = scale.to(self.weight_scale.device, SCALE_DTYPE)
        return self

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """Multiply by the whole numbers, then by the scales: a row has one, and so has its output."""
        dtype = self.dtype
        if dtype == torch.float16:  # sums of whole numbers would leave its range
            return nn.functional.linear(x.to(dtype), self.dense(), self.bias)
        out = nn.functional.linear(x.to(dtype), self.weight.to(dtype)) * self.weight_scale
        return out if self.bias is None else out + self.bias

    def dense(self) -> Float[Tensor, "d_out d_in"]:
        """The matrix that this layer applies, in its format."""
        wide = torch.promote_types(self.dtype, self.weight_scale.dtype)
        return Quantised(self.weight, self.weight_scale).dense(wide).to(self.dtype)

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
    return (layer if isinstance(layer, Int8Linear) else layer.weight).dtype  # type: ignore[return-value]
