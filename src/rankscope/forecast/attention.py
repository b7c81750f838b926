"""T5 attention for whole sequences and for incremental decoding with a key/value cache.

Keys are cached per head or, for a factored layer of small rank, as the latent c = down·x that all heads share; the
query is then projected into the latent space: q_hᵀ(up_h c) = (up_hᵀ q_h)ᵀc. Likewise for values:
up_h Σ a c = Σ a (up_h c). *Groups* is the number of vectors stored per token: one per head, or one.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.forecast.products import Projections, is_factored
from rankscope.lowrank import FactoredLinear, HeadWidthAttention
from rankscope.lowrank.heads import Heads
from rankscope.lowrank.linear import applied_weight

LATENT_SHARE = 0.5
"""Self-attention caches the latents of a factored layer up to this rank, as a fraction of the heads' total width."""


class Attention:
    """T5 attention without its norm.

    Args:
        stock: a `T5Attention` or `HeadWidthAttention`; its weights are shared, not copied.
        cached: keys and values are cached for the queries of many steps, which favours latents.
        crossed: cross-attention: keys and values are projected from another sequence.
    """

    def __init__(self, stock: Any, *, cached: bool, crossed: bool) -> None:
        self.heads = heads = int(stock.n_heads)
        q, k, v, o = stock.q, stock.k, stock.v, stock.o
        if isinstance(stock, HeadWidthAttention):
            q, k, v = (_wide(one, how) for one, how in ((q, stock.qk), (k, stock.qk), (v, stock.vo)))
            o = o if stock.vo.equal else _linear(stock.vo.spread_rows(_whole(o).t()).t())
        latent = [cached and _pays(one, 1 / heads if crossed else LATENT_SHARE) for one in (k, v)]
        self.crossed = crossed
        if crossed:
            self.query = Projections([q], repeated=cached)
            self.memory = Projections([k, v], latent, repeated=False)
        else:
            self.query = Projections([q, k, v], [False, *latent], repeated=cached)
        self.key_up, self.value_up = (
            _up(one, heads) if small else None for one, small in zip((k, v), latent, strict=True)
        )
        self.key_groups, self.value_groups = (1 if small else heads for small in latent)
        self.output = Projections([o], repeated=cached)

    def keys_values(
        self, x: Float[Tensor, "*batch d_model"]
    ) -> tuple[Float[Tensor, "*batch key_groups key_width"], Float[Tensor, "*batch value_groups value_width"]]:
        """Project the keys and values of another sequence."""
        keys, values = self.memory(x)
        return _split(keys, self.key_groups), _split(values, self.value_groups)

    def project(self, x: Float[Tensor, "*batch d_model"]) -> tuple[Tensor, ...]:
        """Project queries (*batch, heads, key_width) and, for self-attention, keys and values as in `keys_values`."""
        found = self.query(x)
        queries = _split(found[0], self.heads)
        if self.key_up is not None:
            queries = torch.einsum("...hw,hwr->...hr", queries, self.key_up)
        if self.crossed:
            return (queries,)
        keys, values = found[1:]
        return queries, _split(keys, self.key_groups), _split(values, self.value_groups)

    def add_output(
        self, x: Float[Tensor, "rows d_model"], attended: Float[Tensor, "rows heads value_width"]
    ) -> Float[Tensor, "rows d_model"]:
        """Add the output projection of the attended values to ``x``, possibly in place."""
        if self.value_up is not None:
            attended = torch.einsum("...hr,hwr->...hw", attended, self.value_up)
        return self.output.add(x, attended.flatten(-2))


def attend_all(
    queries: Float[Tensor, "series heads tokens key_width"],
    keys: Float[Tensor, "series heads others key_width"],
    values: Float[Tensor, "series heads others value_width"],
    mask: Float[Tensor, "*series *heads *tokens others"] | None,
) -> Float[Tensor, "series heads tokens value_width"]:
    """Attend from many tokens to others, using the faster of torch's implementations."""
    if queries.device.type != "cpu" or queries.dtype == torch.float32:
        return nn.functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=1.0)
    scores = torch.matmul(queries, keys.transpose(-2, -1))
    if mask is not None:
        scores += mask
    return torch.matmul(scores.softmax(dim=-1), values)


def attend(
    queries: Float[Tensor, "rows heads key_width"],
    keys: Float[Tensor, "rows key_groups tokens key_width"],
    values: Float[Tensor, "rows value_groups tokens value_width"],
    bias: Float[Tensor, "*rows heads tokens"],
) -> Float[Tensor, "rows heads value_width"]:
    """Attend from one new token per row to the row's cached tokens."""
    rows, heads, _ = queries.shape
    groups, tokens = keys.shape[1:3]
    scores = torch.bmm(queries.reshape(rows * groups, heads // groups, -1), keys.flatten(0, 1).transpose(1, 2))
    weights = torch.softmax(scores.view(rows, heads, tokens).add_(bias), dim=-1)
    groups = values.shape[1]
    return torch.bmm(weights.view(rows * groups, heads // groups, tokens), values.flatten(0, 1)).view(rows, heads, -1)


def attend_shared(
    queries: Float[Tensor, "series paths heads key_width"],
    keys: Float[Tensor, "series key_groups tokens key_width"],
    values: Float[Tensor, "series value_groups tokens value_width"],
    mask: Float[Tensor, "series 1 1 tokens"] | None,
) -> Float[Tensor, "series paths heads value_width"]:
    """Attend from all sample paths of a series to a single copy of its context."""
    heads, one_each = queries.shape[2], queries.shape[2]
    if keys.shape[1] == values.shape[1] == one_each:
        return attend_all(queries.transpose(1, 2), keys, values, mask).transpose(1, 2)
    if keys.shape[1] == one_each:
        scores = torch.matmul(queries.transpose(1, 2), keys.transpose(-2, -1))  # (series, heads, paths, tokens)
    else:
        scores = torch.matmul(queries.flatten(1, 2).unsqueeze(1), keys.transpose(-2, -1))
        scores = scores.squeeze(1).unflatten(1, (-1, heads)).transpose(1, 2)
    weights = torch.softmax(scores if mask is None else scores + mask, dim=-1)
    if values.shape[1] == one_each:
        return torch.matmul(weights, values).transpose(1, 2)
    flat = weights.transpose(1, 2).flatten(1, 2).unsqueeze(1)
    return torch.matmul(flat, values).squeeze(1).unflatten(1, (-1, heads))


def _split(x: Float[Tensor, "*batch numbers"], parts: int) -> Float[Tensor, "*batch parts width"]:
    """Unflatten the last axis; faster than ``Tensor.unflatten``."""
    return x.view(*x.shape[:-1], parts, -1)


def _pays(layer: Any, share: float) -> bool:
    """Return whether latents are short enough to pay: each query uses all of them rather than one head's keys."""
    return is_factored(layer) and bool(layer.rank <= share * layer.out_features)


def _up(layer: Any, heads: int) -> Float[Tensor, "heads width rank"]:
    weight: Tensor = layer.up.weight
    return weight.detach().unflatten(0, (heads, -1))


def _wide(layer: nn.Module, heads: Heads) -> nn.Module:
    """Pad a layer's rows with zeros so that all heads have equal widths; no-op if they already do."""
    return layer if heads.equal else _linear(heads.spread_rows(_whole(layer)))


def _whole(layer: nn.Module) -> Float[Tensor, "d_out d_in"]:
    """Return the dense matrix of a layer, for any storage."""
    return (layer.dense() if isinstance(layer, FactoredLinear) else applied_weight(layer)).detach()


def _linear(weight: Float[Tensor, "d_out d_in"]) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    layer.weight = nn.Parameter(weight.contiguous(), requires_grad=False)
    return layer
