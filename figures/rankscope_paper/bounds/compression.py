"""Attention as the paper has it, and its matrices on low-rank inputs: Theorems 3 and 5, the sketches of Theorem 6."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.errors import OptionError


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


@dataclass(frozen=True)
class Attention:
    """An input and three attention matrices in the paper's convention: tokens are columns of ``u``."""

    u: Float[Tensor, "d_model tokens"]
    w_q: Float[Tensor, "d_out d_model"]
    w_k: Float[Tensor, "d_out d_model"]
    w_v: Float[Tensor, "d_out d_model"]
    heads: int = 1


def projected(
    w: Float[Tensor, "d_out d_model"], basis: Float[Tensor, "d_model rank"]
) -> Float[Tensor, "d_out d_model"]:
    """W U_r U_rᵀ: rank at most r, no norm grows (proof of Thm 5)."""
    return w @ basis @ basis.mT


def score_norm(
    w_q: Float[Tensor, "d_out d_model"], w_k: Float[Tensor, "d_out d_model"], heads: int, scale: float | None = None
) -> float:
    """max_i ‖W_Q^(i)ᵀ W_K^(i)‖₂·scale: the most that a score can be, over unit tokens; scale is 1/√d_h by default."""
    width = w_q.shape[0] // heads
    factor = width**-0.5 if scale is None else scale
    pairs = zip(w_q.chunk(heads), w_k.chunk(heads), strict=True)
    return factor * max(float(torch.linalg.matrix_norm(q.mT @ k, 2)) for q, k in pairs)


def value_norm(w_v: Float[Tensor, "d_out d_model"], heads: int) -> float:
    """(Σ_i ‖W_V^(i)‖₂²)^{1/2}; at most C√d where ‖W_V^(i)‖₂ ≤ C√d_h."""
    return math.sqrt(sum(float(torch.linalg.matrix_norm(v, 2)) ** 2 for v in w_v.chunk(heads)))


def theorem5_upper(residual: float, *, tokens: int, scores: float, values: float, radius: float) -> float:
    """Bound on ‖MH-Attn(U; W) − MH-Attn(U; W̃)‖_F for W̃ = W U_r U_rᵀ in all three matrices, whatever U (Thms 3 i, 5).

    √L·v·(δ + C·min(2, 2aCδ)), at most √L·v·(1 + 2aC²)·σ_{r+1}. Column by column the error is
    W_V U(p − p̃) + W_V(U − Ũ)p̃ with ‖p − p̃‖₁ ≤ min(2, max|score − score~|), as softmax is 1-Lipschitz from the maximum
    norm to the sum norm, and each score moves by at most 2aCδ.

    The paper prints O(√d σ_{r+1}) without the √L. That fails: where U repeats one token, all L columns have the same
    error. `theorem5_distinct` is free of L where tokens do not repeat.

    Args:
        residual: δ = max ‖x − U_rU_rᵀx‖₂ over the columns of Ξ, at most σ_{r+1}(Ξ).
        tokens: L.
        scores: a, see `score_norm`; at most C under the theorem's hypothesis.
        values: v, see `value_norm`; at most C√d under the theorem's hypothesis.
        radius: C, the largest norm of a column of Ξ.
    """
    return math.sqrt(tokens) * values * (residual + radius * min(2.0, 2 * scores * radius * residual))


def theorem5_distinct(
    sigma: Float[Tensor, " k"], rank: int, *, tokens: int, scores: float, values: float, radius: float, repeats: int = 1
) -> float:
    """The same error where no column of Ξ occurs more than ``repeats`` = m times in U; free of L otherwise.

    v·κ·√m·(σ_{r+1} + 2a·(mσ_1²/L)·τ), κ = exp(2aC²), τ = (σ_{r+1}² + …)^{1/2}. All entries of the softmax are at most
    κ/L, so ‖P̃‖_F ≤ κ, and its Jacobian has norm at most κ/L; the scores move by a matrix of Frobenius norm at most
    2a‖U‖₂‖U − Ũ‖_F. Since σ_1² ≤ NC², this is the printed √d σ_{r+1} with √(d − r) more in its second term.

    Args:
        sigma: singular values of Ξ, descending.
        rank: r.
        tokens: L.
        scores: a, see `score_norm`.
        values: v, see `value_norm`.
        radius: C, the largest norm of a column of Ξ.
        repeats: m.
    """
    rest = sigma[rank:].to(torch.float64)
    if len(rest) == 0:
        return 0.0
    top, tail = float(sigma[0]), float(rest.square().sum().sqrt())
    spread = 2 * scores * repeats * top**2 / tokens
    exponent = 2 * scores * radius**2
    kappa = math.exp(exponent) if exponent < 700 else math.inf
    return values * kappa * math.sqrt(repeats) * (float(rest[0]) + spread * tail)


def theorem3_printed(sigma_next: float, *, d_model: int, bound: float) -> float:
    """Bound that Theorems 3 (i) and 5 print, C(1 + 2C³)·√d·σ_{r+1}, with the constant of `theorem5_upper` and no √L.

    Kept to show where it fails; ``bound`` is C ≥ ‖x_j‖, ‖W_Q^(i)ᵀW_K^(i)‖/√d_h, ‖W_V^(i)‖/√d_h.
    """
    return bound * (1 + 2 * bound**3) * math.sqrt(d_model) * sigma_next


def one_token_lower(
    w_v: Float[Tensor, "d_out d_model"], xi: Float[Tensor, "d_model n"], rank: int, tokens: int
) -> float:
    """Bound from below on the worst error over inputs of one repeated token, for any W̃_Q, W̃_K and W̃_V of rank r.

    √(L/N)·(Σ_{i>r} σ_i(W_VΞ)²)^{1/2}. Where U repeats x_j, softmax averages equal columns, so queries and keys do not
    matter and the error is √L‖(W_V − W̃_V)x_j‖. Its squares over the N tokens sum to L‖(W_V − W̃_V)Ξ‖_F² (Eckart, Young).
    With W_V = √d·I and Ξ = s·I_d it is √(L(d−r))·s ≥ √L·σ_{r+1}: no W̃ at all meets O(√d σ_{r+1}) for every L.
    """
    rest = torch.linalg.svdvals(w_v @ xi)[rank:]
    return math.sqrt(tokens / xi.shape[1]) * float(rest.square().sum().sqrt())


def theorem3_lower(sigma_next: float) -> float:
    """Bound σ_{r+1}/4 from below on the error of any W̃_V of rank r, in the construction of Theorem 3 (ii)."""
    return sigma_next / 4


def theorem3_construction(sigma: Float[Tensor, " d_model"], tokens: int, *, as_printed: bool = False) -> Attention:
    """Input and matrices on which no value matrix of rank r comes nearer than σ_{r+1}/4 (Thm 3 ii).

    U = [diag(σ) 0] and W_QᵀW_K = τσ_d⁻²√d·I, so that every token attends to itself. The paper sets τ = log(4d); its
    proof needs softmax weights of at least ½, which takes e^τ ≥ L − 1 as well, so τ = log max(4d, L) here: the same up
    to L = 4d. W_V is the identity; multiplying it by an orthogonal matrix changes no error.

    Args:
        sigma: descending, positive, at most 1.
        tokens: L ≥ d.
        as_printed: τ = log(4d) at any L.

    Raises:
        OptionError: σ is not descending within (0, 1], or L < d.
    """
    u = _diagonal_input(sigma, tokens)
    d = len(sigma)
    logit = math.log(4 * d if as_printed else max(4 * d, tokens))
    eye = torch.eye(d, dtype=torch.float64)
    root = math.sqrt(logit * math.sqrt(d)) / float(sigma[-1])
    return Attention(u, root * eye, root * eye, eye)


def theorem6_lower(sigma_next: float) -> float:
    """Bound σ_{r+1}/2 from below on the error of any W̃_V of rank r shared by all heads (Thm 6 i)."""
    return sigma_next / 2


def theorem6_attained(sigma: Float[Tensor, " d_model"], rank: int, heads: int) -> float:
    """Bound (√5/2)σ_{hr+1} on the error of `theorem6_sketches`: sharper than the printed 4√h σ_{hr+1} by 3.6√h.

    The error is diagonal on the first d columns, at most σ_{hr+1}; each of the L − d others is 1/L of the sum of at
    most d − hr cut values. Its square is at most σ_{hr+1}²(1 + d(L−d)/L²) ≤ (5/4)σ_{hr+1}².
    """
    return math.sqrt(5) / 2 * float(sigma[heads * rank])


def theorem6_construction(sigma: Float[Tensor, " d_model"], tokens: int, heads: int) -> Attention:
    """Input and matrices on which head-dependent sketches beat shared ones (App. I.1).

    The singular values are dealt to the heads in turn, W_V = I, and queries and keys are equal unit vectors, one
    direction per token, times 1/σ, times a factor that makes every token attend to itself up to 1e-14.

    Raises:
        OptionError: σ is not descending within (0, 1], L < d, or d_h = d/h is not a whole number of at least 2: unit
            vectors on a line cannot be told apart.
    """
    d = len(sigma)
    if d % heads or d // heads < 2:
        raise OptionError(f"Theorem 6 needs d_h = d/h whole and at least 2, got d = {d}, h = {heads}.")
    _diagonal_input(sigma, tokens)
    dealt = _dealt(sigma, heads)
    u = torch.cat([torch.diag(dealt), torch.zeros(d, tokens - d, dtype=torch.float64)], dim=1)
    w = _strength(d, tokens, heads) * _directions(d, d // heads) / dealt
    stacked = w.repeat(heads, 1)
    return Attention(u, stacked, stacked, torch.eye(d, dtype=torch.float64), heads)


def theorem6_sketches(sigma: Float[Tensor, " d_model"], tokens: int, heads: int, rank: int) -> Attention:
    """The head-dependent approximation of `theorem6_construction`: rank r in W_V, r + 1 in W_Q and W_K, per head.

    The first r tokens of head i attend to themselves; all others look at one token whose value the head cuts. The paper
    takes the direction of that token from the next head, which is the head itself where h = 1, and then collides with
    the first token; v_{r+1} of the same head does for every h.

    Raises:
        OptionError: as in `theorem6_construction`, or r is not below d_h.
    """
    whole = theorem6_construction(sigma, tokens, heads)
    d, width = len(sigma), len(sigma) // heads
    if not 0 < rank < width:
        raise OptionError(f"Theorem 6 needs 0 < r < d_h, got r = {rank} with d_h = {width}.")
    dealt = _dealt(sigma, heads)
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    for head in range(heads):
        q, k, v = (w.chunk(heads)[head].clone() for w in (whole.w_q, whole.w_k, whole.w_v))
        own = slice(head * width, head * width + rank)
        others = torch.ones(d, dtype=torch.bool)
        others[own] = False
        away = k[:, own.stop] * dealt[own.stop]
        sink = own.stop if head == 0 else 0
        q[:, others] = 0
        q[:, sink] = away / dealt[sink]
        k[:, others] = away[:, None] / dealt[others]
        v[:, others] = 0
        parts.append((q, k, v))
    w_q, w_k, w_v = (torch.cat([part[i] for part in parts]) for i in range(3))
    return Attention(whole.u, w_q, w_k, w_v, heads)


def _dealt(sigma: Float[Tensor, " d_model"], heads: int) -> Float[Tensor, " d_model"]:
    """σ_1, σ_{h+1}, …, then σ_2, σ_{h+2}, …: head by head."""
    return sigma.to(torch.float64).reshape(-1, heads).mT.reshape(-1)


def _directions(count: int, width: int) -> Float[Tensor, "width count"]:
    """Unit vectors no two of which are parallel: evenly spaced on half a circle."""
    angle = torch.arange(count, dtype=torch.float64) * (math.pi / count)
    vectors = torch.zeros(width, count, dtype=torch.float64)
    vectors[0], vectors[1] = angle.cos(), angle.sin()
    return vectors


def _strength(d: int, tokens: int, heads: int) -> float:
    margin = 1 - math.cos(math.pi / d)
    return math.sqrt((math.log(tokens) + 32) / margin * math.sqrt(d / heads))


def _diagonal_input(sigma: Float[Tensor, " d_model"], tokens: int) -> Float[Tensor, "d_model tokens"]:
    """[diag(σ) 0], after a look at σ and L."""
    s = sigma.to(torch.float64)
    if len(s) == 0 or not bool((s > 0).all() and (s[0] <= 1) and (s.diff() <= 0).all()):
        raise OptionError("the construction needs 1 ≥ σ_1 ≥ … ≥ σ_d > 0: sort the singular values and divide by σ_1.")
    if tokens < len(s):
        raise OptionError(f"the construction needs L ≥ d, got L = {tokens}, d = {len(s)}.")
    return torch.cat([torch.diag(s), torch.zeros(len(s), tokens - len(s), dtype=torch.float64)], dim=1)
