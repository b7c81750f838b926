"""Flow of ranks through one attention layer: Theorem 4 and Corollary 1."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.errors import OptionError
from rankscope_paper.bounds.compression import Attention, _diagonal_input

E2 = math.exp(2.0)


def head_factor(heads: int) -> float:
    """cosh(1)√h: σ_{hm+1}(Y) ≤ cosh(1)√h σ_{m+1}(U) under the hypotheses of Theorem 4, in place of the paper's e²h.

    Scores in [−1, 1] leave Σp² ≤ cosh²(1)/L in every column of the softmax (Kantorovich), so ‖P‖_F ≤ cosh(1); and
    YᵀY = ΣY_iᵀY_i adds squares over heads.
    """
    return math.cosh(1) * math.sqrt(heads)


def theorem4_sharp(sigma: Float[Tensor, " d_model"], heads: int, depth: float) -> Float[Tensor, " d_model"]:
    """Theorem 4 (i) with its best constants here: c = `head_factor` for e²h and 1/(1 − c/√D) for 2; needs √D > c.

    Never above `theorem4_upper`. The 2 stands for 1/σ_1(Z) and tends to 1 as D grows.
    """
    weight = head_factor(heads) / math.sqrt(depth)
    return _sum_bound(sigma, heads, weight) / (1 - weight)


def theorem4_upper(sigma: Float[Tensor, " d_model"], heads: int, depth: float) -> Float[Tensor, " d_model"]:
    """Bound on σ_k(Z)/σ_1(Z), k = 1 … d, for Z = U + MH-Attn(U)/√D (Thm 4 i, eq. 5).

    2 min_{1≤j≤k} (σ_{k−j+1} + e²h/√D σ_{⌊(j−1)/h⌋+1}). Needs σ_1 = 1,
    √D ≥ 2e²h, ‖W_Q^(i)ᵀW_K^(i)‖₂ ≤ √d_h and ‖W_V^(i)‖₂ ≤ 1, see `theorem4_unmet`.
    """
    return 2 * _sum_bound(sigma, heads, E2 * heads / math.sqrt(depth))


def corollary1_upper(sigma: Float[Tensor, " d_model"], heads: int) -> Float[Tensor, " d_model"]:
    """Bound (1 + cosh(1)√h) σ_{⌈k/(h+1)⌉} on σ_k(Z), k = 1 … d, with D = 1 (Cor 1).

    The best j in σ_k(Z) ≤ σ_{k−j+1} + c σ_{⌊(j−1)/h⌋+1} reaches that index and no further; it is ⌊(k−1)/(h+1)⌋ + 1. The
    paper prints k + 1 for k − 1, one index more where k or k + 1 is a multiple of h + 1: an input of rank 1 can have an
    output of rank h + 1, whose last singular value no σ_2 bounds. Equal tokens reach 1 + √h at k = 1.
    """
    k = torch.arange(1, len(sigma) + 1)
    return (1 + head_factor(heads)) * sigma[-(-k // (heads + 1)) - 1]


def corollary1_printed(sigma: Float[Tensor, " d_model"], heads: int) -> Float[Tensor, " d_model"]:
    """Bound that Corollary 1 prints, with the constant of `corollary1_upper`: (1 + cosh(1)√h) σ_{⌊(k+1)/(h+1)⌋+1}.

    Kept to show where it fails; infinite where the index is beyond d.
    """
    k = torch.arange(1, len(sigma) + 1)
    index = (k + 1) // (heads + 1)
    padded = torch.cat([sigma, sigma.new_full((1,), math.inf)])
    return (1 + head_factor(heads)) * padded[index.clamp(max=len(sigma))]


def theorem4_lower(sigma: Float[Tensor, " d_model"], heads: int, depth: float) -> Float[Tensor, " d_model"]:
    """Bound on σ_k(Z)/σ_1(Z) from below in `theorem4_construction`, k = 1 … d (eq. 6); 0 where it says nothing.

    The largest ¼(σ_{(i−1)d_h+⌈k/i⌉} + σ_{⌈k/i⌉}/√D) over the heads i with ⌈k/i⌉ < d_h.
    """
    d = len(sigma)
    width = d // heads
    best = sigma.new_zeros(d)
    for i in range(1, heads + 1):
        ceil = -(-torch.arange(1, d + 1) // i)
        kept = ceil < width
        inner = ceil[kept]
        best[kept] = torch.maximum(
            best[kept], (sigma[(i - 1) * width + inner - 1] + sigma[inner - 1] / math.sqrt(depth)) / 4
        )
    return best


def corollary1_lower(sigma: Float[Tensor, " d_model"], heads: int) -> Float[Tensor, " d_model"]:
    """Bound ⅘σ_{⌈k/h⌉} on σ_k(Z) from below in `theorem4_construction` with D = 1, for k ≤ d − h; 0 beyond (Cor 1).

    ⌈k/h⌉ < d_h means k ≤ d − h. The paper prints k ≤ d − d_h, more where d_h < h, and fails there.
    """
    d = len(sigma)
    k = torch.arange(1, d + 1)
    return torch.where(k <= d - heads, 0.8 * sigma[-(-k // heads) - 1], sigma.new_zeros(()))


def theorem4_construction(sigma: Float[Tensor, " d_model"], tokens: int, heads: int) -> Attention:
    """Input and matrices whose output has the ranks of eq. 6 (App. J).

    U = [diag(σ) 0]; head i copies the first d_h − 1 coordinates of the first tokens into the tokens of its own block;
    all other tokens of U look at token d_h, whose value is cut. Scores are so strong that softmax is exact to 1e-14.

    Raises:
        OptionError: σ is not descending within (0, 1], L < d, or h does not divide d.
    """
    d = len(sigma)
    if d % heads:
        raise OptionError(f"Theorem 4 needs d_h = d/h to be whole, got d = {d}, h = {heads}.")
    u = _diagonal_input(sigma, tokens)
    width = d // heads
    s = sigma.to(torch.float64)
    strength = (math.log(tokens) + 32) * math.sqrt(width)
    query = torch.zeros(width, d, dtype=torch.float64)
    query[:, :width] = torch.diag(strength / s[:width])
    value = torch.zeros(width, d, dtype=torch.float64)
    value[: width - 1, : width - 1] = torch.eye(width - 1, dtype=torch.float64)
    keys = []
    for head in range(heads):
        key = torch.zeros(width, d, dtype=torch.float64)
        key[-1] = 1 / s
        own = slice(head * width, (head + 1) * width)
        key[:, own] = torch.diag(1 / s[own])
        keys.append(key)
    return Attention(u, query.repeat(heads, 1), torch.cat(keys), value.repeat(heads, 1), heads)


def theorem4_unmet(u_norm: float, *, scores: float, values: float, heads: int, depth: float) -> tuple[str, ...]:
    """Hypotheses of Theorem 4 (i) that are not met, each with its number; empty if all are.

    Args:
        u_norm: σ_1(U), which is scaled away: scores grow by its square.
        scores: max_i ‖W_Q^(i)ᵀW_K^(i)‖₂·(score scale), see `score_norm`.
        values: max_i ‖W_V^(i)‖₂.
        heads: h.
        depth: D.
    """
    wrong = []
    if math.sqrt(depth) < 2 * E2 * heads:
        wrong.append(f"√D = {math.sqrt(depth):.3g} < 2e²h = {2 * E2 * heads:.3g}")
    if scores * u_norm**2 > 1 + 1e-12:
        wrong.append(f"max_i ‖W_Q^(i)ᵀW_K^(i)‖/√d_h, with σ_1(U) scaled to 1, = {scores * u_norm**2:.3g} > 1")
    if values > 1 + 1e-12:
        wrong.append(f"max_i ‖W_V^(i)‖ = {values:.3g} > 1")
    return tuple(wrong)


def _sum_bound(sigma: Float[Tensor, " d_model"], heads: int, weight: float) -> Float[Tensor, " d_model"]:
    """Least value over 1 ≤ j ≤ k of σ_{k−j+1} + weight·σ_{⌊(j−1)/h⌋+1}, for every k."""
    d = len(sigma)
    spread = weight * sigma[torch.arange(d) // heads]
    return torch.stack([(sigma[:k].flip(0) + spread[:k]).min() for k in range(1, d + 1)])
