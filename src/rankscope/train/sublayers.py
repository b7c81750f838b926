"""T5 sublayers for CPU training: fused matmuls in one dtype, with explicit gradients.

The stock modules take some twenty small operations and as many intermediate tensors per sublayer, which on a processor
that multiplies bfloat16 natively cost as much as the products. Here the norm's gain goes into the weights behind it,
queries, keys and values are one product, and only what the gradient needs is kept. The residual stream, sums over
series and the gradients of weights stay in float32.

Each adds to ``carried``, the residual stream as it comes out behind the sublayer: ``x`` itself, or ``skip · x`` where
the stream has another width there.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

Rows = Float[Tensor, "rows _"]
IGNORED = -100
"""Ignored label."""
ROWS_AT_ONCE = 128
"""Rows of logits that are in memory at a time."""


def _normalise(x: Rows, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Divide rows by their root mean square; also return what they were multiplied by."""
    factor = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(eps).rsqrt_()
    return (x * factor).to(dtype), factor


def _through_norm(gradient: Tensor, normed: Tensor, factor: Tensor) -> Rows:
    """Take a gradient from the normalised rows to the rows."""
    gradient = gradient.float()
    along = (gradient * normed).mean(dim=-1, keepdim=True)
    return torch.addcmul(gradient, normed.float(), along, value=-1).mul_(factor)


def _heads(rows: Tensor, parts: int, batch: int, heads: int) -> Tensor:
    """Sort the columns of packed projections by part, series and head: (parts, series · heads, tokens, width)."""
    split = rows.view(batch, len(rows) // batch, parts, heads, -1)
    return split.permute(2, 0, 3, 1, 4).reshape(parts, batch * heads, split.shape[1], -1)


def _columns(parts: Tensor, batch: int, heads: int) -> Tensor:
    """Undo `_heads`."""
    count, _, tokens, width = parts.shape
    split = parts.view(count, batch, heads, tokens, width)
    return split.permute(1, 3, 0, 2, 4).reshape(batch * tokens, count * heads * width)


def _attend(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, mask: Tensor | None, heads: int
) -> tuple[Tensor, Tensor]:
    """Weights and weighted values (series · heads, tokens, …)."""
    scores = query @ key.transpose(1, 2)
    by_head = scores.view(-1, heads, *scores.shape[1:])
    if bias is not None:
        by_head.add_(bias.to(scores.dtype))
    if mask is not None:
        by_head.add_(mask[:, None, None, :].to(scores.dtype))
    weights = torch.softmax(scores, dim=-1)
    return weights, weights @ value


def _through_attention(
    gradient: Tensor, weights: Tensor, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, value and scores."""
    by_weight = gradient @ value.transpose(1, 2)
    scores = torch._softmax_backward_data(by_weight, weights, -1, weights.dtype)
    return scores @ key, scores.transpose(1, 2) @ query, weights.transpose(1, 2) @ gradient, scores


def _rotate(states: Tensor, turns: Tensor) -> Tensor:
    """Rotate queries or keys by position; ``turns`` holds cosine and sine, the latter negative to rotate back."""
    first, second = states.chunk(2, dim=-1)
    return states * turns[0] + torch.cat([-second, first], dim=-1) * turns[1]


class SelfAttention(torch.autograd.Function):
    """``carried + O · attention(norm(x))``, scores unscaled, with T5's bias or Chronos-2's rotary positions.

    All heads have the same number of queries and keys, and the same number of values, which may be another.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Rows,
        carried: Rows,
        gain: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        out: Tensor,
        bias: Float[Tensor, "#heads tokens tokens"] | None,
        turns: Float[Tensor, "2 tokens width"] | None,
        mask: Float[Tensor, "series tokens"] | None,
        batch: int,
        heads: int,
        eps: float,
        dtype: torch.dtype,
    ) -> Rows:
        """Add attention to the residual stream.

        ``turns`` holds cosine and sine of rotary positions; ``mask`` is added to the scores of a key, None where none
        is shut out.
        """
        normed, factor = _normalise(x, eps, dtype)
        weight = torch.cat([query, key, value])
        scaled = (weight * gain).to(dtype)
        pairs, singles = (normed @ scaled.t()).split([2 * len(query), len(value)], dim=1)
        parts, value_parts = _heads(pairs, 2, batch, heads), _heads(singles, 1, batch, heads)[0]
        if turns is not None:
            turns = turns.to(dtype)
            parts = _rotate(parts, turns)
        attention, values = _attend(parts[0], parts[1], value_parts, bias, mask, heads)
        values = _columns(values[None], batch, heads)
        last = out.to(dtype)
        ctx.save_for_backward(normed, factor, weight, gain, scaled, parts, value_parts, attention, values, last, turns)
        ctx.sizes = batch, heads
        return carried + values @ last.t()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of ``x``, ``carried``, the gain, the four matrices and the bias."""
        normed, factor, weight, gain, scaled, parts, value_parts, attention, values, last, turns = ctx.saved_tensors
        batch, heads = ctx.sizes
        (dx,) = grads
        dy = dx.to(normed.dtype)
        dout = dy.t() @ values
        dvalues = _heads(dy @ last, 1, batch, heads)[0]
        dq, dk, dv, dscores = _through_attention(dvalues, attention, parts[0], parts[1], value_parts)
        stacked = torch.stack([dq, dk])
        if turns is not None:
            stacked = _rotate(stacked, torch.stack([turns[0], -turns[1]]))
        packed = torch.cat([_columns(stacked, batch, heads), _columns(dv[None], batch, heads)], dim=1)
        dscaled = (packed.t() @ normed).float()
        dbias = None
        if ctx.needs_input_grad[7]:
            dbias = dscores.view(batch, heads, *dscores.shape[1:]).sum(dim=0, dtype=torch.float32)
        dgain = (dscaled * weight).sum(dim=0)
        width = heads * parts.shape[-1]
        dquery, dkey, dvalue = (dscaled * gain).split([width, width, len(weight) - 2 * width])
        through = _through_norm(packed @ scaled, normed, factor)
        return through, dx, dgain, dquery, dkey, dvalue, dout.float(), dbias, *(None,) * 6


class CrossAttention(torch.autograd.Function):
    """``carried + O · attention(norm(x), encoded)``, without a position bias."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Rows,
        carried: Rows,
        encoded: Float[Tensor, "others d_model"],
        gain: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        out: Tensor,
        mask: Float[Tensor, "series keys"] | None,
        batch: int,
        heads: int,
        eps: float,
        dtype: torch.dtype,
    ) -> Rows:
        """Add attention over ``encoded`` to the residual stream."""
        normed, factor = _normalise(x, eps, dtype)
        asked = (query * gain).to(dtype)
        answering = torch.cat([key, value]).to(dtype)
        seen = encoded.to(dtype)
        queries = _heads(normed @ asked.t(), 1, batch, heads)[0]
        projected = (seen @ answering.t()).split([len(key), len(value)], dim=1)
        keys, rows = (_heads(one, 1, batch, heads)[0] for one in projected)
        attention, values = _attend(queries, keys, rows, None, mask, heads)
        values = _columns(values[None], batch, heads)
        last = out.to(dtype)
        ctx.save_for_backward(
            normed, factor, query, gain, asked, answering, seen, queries, keys, rows, attention, values, last
        )
        ctx.sizes = batch, heads
        return carried + values @ last.t()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of ``x``, ``carried``, ``encoded``, the gain and the four matrices."""
        saved = ctx.saved_tensors
        normed, factor, query, gain, asked, answering, seen, queries, keys, rows, attention, values, last = saved
        batch, heads = ctx.sizes
        (dx,) = grads
        dy = dx.to(normed.dtype)
        dout = dy.t() @ values
        dvalues = _heads(dy @ last, 1, batch, heads)[0]
        dq, dk, dv, _ = _through_attention(dvalues, attention, queries, keys, rows)
        dq = _columns(dq[None], batch, heads)
        packed = torch.cat([_columns(part[None], batch, heads) for part in (dk, dv)], dim=1)
        dasked = (dq.t() @ normed).float()
        dkey, dvalue = (packed.t() @ seen).float().split([len(query), len(answering) - len(query)])
        through = _through_norm(dq @ asked, normed, factor)
        dencoded = (packed @ answering).float()
        dgain = (dasked * query).sum(dim=0)
        return through, dx, dencoded, dgain, dasked * gain, dkey, dvalue, dout.float(), *(None,) * 5


class FeedForward(torch.autograd.Function):
    """``carried + W_o · relu(W_i · norm(x))``."""

    @staticmethod
    def forward(
        ctx: Any, x: Rows, carried: Rows, gain: Tensor, wi: Tensor, wo: Tensor, eps: float, dtype: torch.dtype
    ) -> Rows:
        """Add the feed-forward layer to the residual stream."""
        normed, factor = _normalise(x, eps, dtype)
        scaled, last = (wi * gain).to(dtype), wo.to(dtype)
        hidden = (normed @ scaled.t()).relu_()
        ctx.save_for_backward(normed, factor, wi, gain, scaled, hidden, last)
        return carried + hidden @ last.t()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of ``x``, ``carried``, the gain and the two matrices."""
        normed, factor, wi, gain, scaled, hidden, last = ctx.saved_tensors
        (dx,) = grads
        dy = dx.to(normed.dtype)
        dlast = dy.t() @ hidden
        dhidden = torch.ops.aten.threshold_backward(dy @ last, hidden, 0)
        dscaled = (dhidden.t() @ normed).float()
        through = _through_norm(dhidden @ scaled, normed, factor)
        return through, dx, (dscaled * wi).sum(dim=0), dscaled * gain, dlast.float(), None, None


class Norm(torch.autograd.Function):
    """T5's norm by itself."""

    @staticmethod
    def forward(ctx: Any, x: Rows, gain: Tensor, eps: float) -> Rows:
        """Divide rows by their root mean square, and multiply columns by ``gain``."""
        normed, factor = _normalise(x, eps, torch.float32)
        ctx.save_for_backward(normed, factor, gain)
        return normed * gain

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of ``x`` and the gain."""
        normed, factor, gain = ctx.saved_tensors
        (dy,) = grads
        return _through_norm(dy * gain, normed, factor), (dy * normed).sum(dim=0), None


class TokenLoss(torch.autograd.Function):
    """Mean loss of ``softmax(x · head)`` over labelled rows; logits exist for a few rows at a time.

    It is the cross-entropy of the labels; with a teacher, ``truth`` times that and 1 − ``truth`` times
    KL(teacher ‖ softmax(x · head)), whose gradient is exactly zero where both compute the same.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Rows,
        head: Float[Tensor, "tokens d_model"],
        labels: Int[Tensor, " rows"],
        dtype: torch.dtype,
        teacher: tuple[Rows, Float[Tensor, "tokens _"]] | None = None,
        truth: float = 1.0,
    ) -> Float[Tensor, ""]:
        """Return the loss, and keep its gradients, which cost little once the logits are there."""
        kept = labels != IGNORED
        rows, wanted = x[kept].to(dtype), labels[kept]
        weight = head.to(dtype)
        guided = None if teacher is None else (teacher[0][kept].to(dtype), teacher[1].to(dtype).t())
        dx, dhead = torch.zeros_like(x), torch.zeros_like(head)
        drows, total, scale = [], x.new_zeros(()), 1 / max(len(wanted), 1)
        for start in range(0, len(wanted), ROWS_AT_ONCE):
            some, right = rows[start : start + ROWS_AT_ONCE], wanted[start : start + ROWS_AT_ONCE, None]
            share = torch.log_softmax(some @ weight.t(), dim=-1, dtype=torch.float32)
            if truth:
                total -= truth * share.gather(1, right).sum()
            wrong = torch.exp(share)
            if guided is not None:
                known = torch.log_softmax(guided[0][start : start + ROWS_AT_ONCE] @ guided[1], -1, torch.float32)
                share = known - share
                target = known.exp_().mul_(1 - truth)
                total += torch.dot(target.flatten(), share.flatten())
                wrong -= target
            if truth:
                wrong.scatter_add_(1, right, wrong.new_full(right.shape, -truth))
            wrong = wrong.mul_(scale).to(dtype)
            drows.append(wrong @ weight)
            dhead += wrong.t() @ some
        if drows:
            dx[kept] = torch.cat(drows).float()
        ctx.save_for_backward(dx, dhead)
        return total * scale

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of ``x`` and the head."""
        dx, dhead = ctx.saved_tensors
        return dx * grads[0], dhead * grads[0], None, None, None, None
