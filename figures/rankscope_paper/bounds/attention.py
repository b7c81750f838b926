"""Attention as the rank paper writes it: tokens are columns, heads are stacked, no output projection."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    u: Float[Tensor, "*batch d_model tokens"],
    w_q: Float[Tensor, "... width d_model"],
    w_k: Float[Tensor, "... width d_model"],
    w_v: Float[Tensor, "... d_value d_model"],
) -> Float[Tensor, "*batch d_value tokens"]:
    """W_V U softmax(Uᵀ W_Qᵀ W_K U / √width), the softmax down each column (§3).

    >>> u = torch.eye(2, dtype=torch.float64)
    >>> attention(u, 0 * u, u, u).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    scores = (w_q @ u).mT @ (w_k @ u) / w_q.shape[-2] ** 0.5
    return w_v @ u @ torch.softmax(scores, dim=-2)


def multi_head_attention(
    u: Float[Tensor, "*batch d_model tokens"],
    w_q: Float[Tensor, "... d_out d_model"],
    w_k: Float[Tensor, "... d_out d_model"],
    w_v: Float[Tensor, "... d_out d_model"],
    heads: int,
) -> Float[Tensor, "*batch d_out tokens"]:
    """Outputs of all heads, stacked (eq. 19): head i attends with the i-th group of rows of each matrix."""
    rows = list(zip(*(w.chunk(heads, dim=-2) for w in (w_q, w_k, w_v)), strict=True))
    return torch.cat([attention(u, q, k, v) for q, k, v in rows], dim=-2)
