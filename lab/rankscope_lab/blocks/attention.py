"""Scaled dot-product and multi-head attention, in the parameters (and the draws) of ``torch.nn.MultiheadAttention``."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from rankscope.errors import OptionError

Attend = Callable[..., Tensor]
"""(queries, keys, values, causal=, dropout=) → mixed values, as `scaled_dot_product` does."""


def scaled_dot_product(
    q: Float[Tensor, "*axes queries d_head"],
    k: Float[Tensor, "*axes keys d_head"],
    v: Float[Tensor, "*axes keys d_value"],
    *,
    causal: int = False,
    dropout: float = 0.0,
) -> Float[Tensor, "*axes queries d_value"]:
    """softmax(q kᵀ / √d_head) v, softmax over keys; dropout acts on the weights.

    Args:
        q: queries.
        k: keys.
        v: values.
        causal: tokens per time step for causal masking (True or 1 for plain sequences); 0 for no masking.
        dropout: dropout rate of the attention weights.
    """
    weights = attention_weights(q, k, causal=causal)
    return F.dropout(weights, dropout) @ v if dropout else weights @ v


def attention_weights(
    q: Float[Tensor, "*axes queries d_head"],
    k: Float[Tensor, "*axes keys d_head"],
    *,
    causal: int = False,
) -> Float[Tensor, "*axes queries keys"]:
    """Compute the attention weights of `scaled_dot_product`; each row sums to 1."""
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        queries, keys = scores.shape[-2:]
        scores = scores.masked_fill(~causal_mask(queries, keys, causal, scores.device), -torch.inf)
    return scores.softmax(-1)


def causal_mask(queries: int, keys: int, step: int, device: torch.device) -> Bool[Tensor, "queries keys"]:
    """Return a causal mask with ``step`` tokens per time step, True where attention is allowed."""
    query, key = (torch.arange(count, device=device) // step for count in (queries, keys))
    return query[:, None] >= key


def fused_dot_product(
    q: Float[Tensor, "*axes queries d_head"],
    k: Float[Tensor, "*axes keys d_head"],
    v: Float[Tensor, "*axes keys d_value"],
    *,
    causal: int = False,
    dropout: float = 0.0,
) -> Float[Tensor, "*axes queries d_value"]:
    """Compute `scaled_dot_product` with torch's fused kernels."""
    mask = causal_mask(q.shape[-2], k.shape[-2], causal, q.device) if causal > 1 else None
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal == 1, dropout_p=dropout)


class MultiHeadAttention(nn.Module):
    """Multi-head attention.

    Parameters, their names and their initial draws are those of ``nn.MultiheadAttention``: a packed query/key/value
    matrix (Xavier-uniform, bias 0) and an output map (default weights, bias 0), so weights can be copied either way.

    Attributes:
        attend: attention function, replaceable by a faster one with the same signature.
    """

    def __init__(self, d_model: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        if d_model % heads:
            raise OptionError(f"{heads} heads do not divide d_model {d_model}.")
        self.heads, self.dropout = heads, dropout
        self.attend: Attend = fused_dot_product
        self.in_proj_weight = nn.Parameter(torch.empty(3 * d_model, d_model))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * d_model))
        self.out_proj = nn.Linear(d_model, d_model)
        nn.init.xavier_uniform_(self.in_proj_weight)
        nn.init.zeros_(self.out_proj.bias)

    def forward(
        self,
        x: Float[Tensor, "batch queries d_model"],
        source: Float[Tensor, "batch keys d_model"] | None = None,
        *,
        causal: int = False,
    ) -> Float[Tensor, "batch queries d_model"]:
        """Attend from ``x`` to itself, or to ``source`` (cross-attention).

        Args:
            x: input of the queries.
            source: input of keys and values (default: ``x``).
            causal: tokens per time step for causal masking; 0 for none.
        """
        q, k, v = self._project(x, source)
        mixed = self.attend(q, k, v, causal=causal, dropout=self.dropout if self.training else 0.0)
        return self.out_proj(mixed.transpose(-2, -3).flatten(-2))

    def _project(self, x: Tensor, source: Tensor | None) -> tuple[Tensor, ...]:
        """Project queries, keys and values to batch × heads × tokens × d_head."""
        if source is None:
            packed = F.linear(x, self.in_proj_weight, self.in_proj_bias)
            parts = packed.chunk(3, -1)
        else:
            d = x.shape[-1]
            both = F.linear(source, self.in_proj_weight[d:], self.in_proj_bias[d:])
            parts = (F.linear(x, self.in_proj_weight[:d], self.in_proj_bias[:d]), *both.chunk(2, -1))
        return tuple(part.unflatten(-1, (self.heads, -1)).transpose(-2, -3) for part in parts)
