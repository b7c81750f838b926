"""Building blocks of the fast T5 networks: norm, feed-forward, encoder."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers.models.t5.modeling_t5 import T5Attention

from rankscope.forecast.attention import Attention, attend_all
from rankscope.forecast.products import Projections


class Norm:
    """T5 layer norm (RMSNorm): x/√(mean x² + ε) times a gain, with the mean in float32."""

    def __init__(self, stock: Any) -> None:
        self.gain: Tensor = stock.weight.detach()
        self.eps = float(stock.variance_epsilon)
        width = self.gain.shape[0]
        self._whole = self.gain * width**0.5
        self._least = self.gain.new_tensor(self.eps * width, dtype=torch.float32).sqrt()

    def __call__(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Normalise."""
        if x.dtype == self.gain.dtype == torch.float32:  # x·√d / √(|x|² + d·ε): fewer kernels
            length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
            return x.div(torch.hypot(length, self._least)).mul_(self._whole)
        wide = x.float()
        wide = x * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.gain * wide.to(self.gain.dtype)


class Skip:
    """Skip connection of a sub-layer: the identity, or a matrix where the residual stream is sliced."""

    def __init__(self, stock: Any, *, repeated: bool = False) -> None:
        self.matrix = Projections([stock.skip], repeated=repeated) if hasattr(stock, "skip") else None

    def __call__(self, x: Float[Tensor, "*batch d_own"]) -> Float[Tensor, "*batch d_next"]:
        """Carry the stream over to the next sub-layer."""
        return x if self.matrix is None else self.matrix(x)[0]


class FeedForward:
    """T5 feed-forward sub-layer with its norm, gated or not."""

    def __init__(self, stock: Any, *, repeated: bool = False) -> None:
        dense = stock.DenseReluDense
        self.norm, self.skip = Norm(stock.layer_norm), Skip(stock, repeated=repeated)
        self.gated = hasattr(dense, "wi_0")
        self.wi = Projections([dense.wi_0, dense.wi_1] if self.gated else [dense.wi], repeated=repeated)
        self.act = dense.act
        self.rectified = type(dense.act) is nn.ReLU and not self.gated
        self.wo = Projections([dense.wo], repeated=repeated)

    def __call__(self, x: Float[Tensor, "rows d_own"]) -> Float[Tensor, "rows d_next"]:
        """Add the sub-layer's output to ``x``, possibly in place."""
        if self.rectified:
            return self.wo.add(self.skip(x), self.wi.relu(self.norm(x)))
        hidden, *linear = self.wi(self.norm(x))
        hidden = self.act(hidden)
        if linear:
            hidden = hidden * linear[0]
        return self.wo.add(self.skip(x), hidden)


class PositionBias:
    """Relative position bias of T5 self-attention: one scalar per head and distance bucket."""

    def __init__(self, stock: Any) -> None:
        self.table: Tensor = stock.relative_attention_bias.weight.detach()
        self.how: dict[str, Any] = {
            "bidirectional": not stock.is_decoder,
            "num_buckets": stock.relative_attention_num_buckets,
            "max_distance": stock.relative_attention_max_distance,
        }
        self._known: Tensor | None = None

    def __call__(self, length: int) -> Float[Tensor, "heads length length"]:
        """Return the bias of every query (rows) and key (columns); cached up to the longest sequence so far."""
        known = self._known  # read once: threads that forecast at the same time replace it
        if known is None or known.shape[-1] < length or known.device != self.table.device:
            distances = torch.arange(1 - length, length, device=self.table.device)  # key − query
            numbers = self.table[T5Attention._relative_position_bucket(distances[None], **self.how)[0]].t().contiguous()
            # Row i of a head has the distances −i to length − 1 − i.
            self._known = known = numbers.unfold(1, length, 1).flip(1)
        return known[:, :length, :length]


class EncoderLayer:
    """Encoder layer: self-attention and feed-forward."""

    def __init__(self, stock: Any) -> None:
        self.norm, self.skip = Norm(stock.layer[0].layer_norm), Skip(stock.layer[0])
        self.attention = Attention(stock.layer[0].SelfAttention, cached=False, crossed=False)
        self.feed_forward = FeedForward(stock.layer[-1])

    def __call__(
        self, x: Float[Tensor, "series tokens d_own"], bias: Float[Tensor, "_ heads tokens tokens"]
    ) -> Float[Tensor, "series tokens d_next"]:
        """Apply the layer; ``x`` may be modified in place."""
        q, k, v = (part.transpose(1, 2) for part in self.attention.project(self.norm(x)))
        attended = attend_all(q, k, v, bias)
        series = len(x)
        flat = self.attention.add_output(self.skip(x).flatten(0, 1), attended.transpose(1, 2).flatten(0, 1))
        return self.feed_forward(flat).unflatten(0, (series, -1))


class Encoder:
    """T5 encoder over embedded tokens.

    Args:
        stock: its `T5Stack`.
    """

    def __init__(self, stock: Any) -> None:
        self.bias = PositionBias(stock.block[0].layer[0].SelfAttention)
        self.layers = [EncoderLayer(block) for block in stock.block]
        self.norm = Norm(stock.final_layer_norm)

    def __call__(
        self, x: Float[Tensor, "series tokens d_first"], kept: Bool[Tensor, "series tokens"] | None
    ) -> Float[Tensor, "series tokens d_last"]:
        """Encode; ``kept`` masks the attended tokens (None: all). ``x`` may be modified in place."""
        bias = self.bias(x.shape[1]).unsqueeze(0).to(x.dtype)
        if kept is not None:
            bias = bias + masked(kept, x.dtype)[:, None, None, :]
        for layer in self.layers:
            x = layer(x, bias)
        return self.norm(x)


def masked(kept: Bool[Tensor, "*batch"], dtype: torch.dtype) -> Float[Tensor, "*batch"]:
    """Return an additive mask: 0 for attended tokens, the dtype's minimum for the others."""
    zero = torch.zeros(kept.shape, dtype=dtype, device=kept.device)
    return zero.masked_fill_(~kept, torch.finfo(dtype).min)
