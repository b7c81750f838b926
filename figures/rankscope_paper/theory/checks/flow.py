"""Checks of Theorem 4 and Corollary 1: how much rank one attention layer adds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope_paper import bounds
from rankscope_paper.experiments.matrices import Generator, gaussian
from rankscope_paper.theory.check import Check
from rankscope_paper.theory.checks.spectra import choose, frame, of_norm, spectrum, with_spectrum

_FLOOR = 1e-12
"""Singular values below this multiple of σ_1 are rounding, not measurements."""


@dataclass(frozen=True)
class Layer:
    """Input, attention matrices and heads of Z = U + MH-Attn(U)/√D."""

    u: Float[Tensor, "d_model tokens"]
    w_q: Float[Tensor, "d_model d_model"]
    w_k: Float[Tensor, "d_model d_model"]
    w_v: Float[Tensor, "d_model d_model"]
    heads: int
    depth: float


def _draw(kind: str, rng: Generator, deep: bool) -> Layer:
    heads, width = choose(rng, 1, 2, 4), choose(rng, 1, 2, 4)
    d = heads * width
    tokens = d * choose(rng, 1, 2, 4)
    sigma = spectrum(rng, d)
    u = with_spectrum(rng, sigma, tokens)
    w_q, w_k, w_v = (gaussian(rng, d, d) for _ in range(3))
    if kind == "rank one":
        sigma = torch.cat([sigma[:1], torch.full((d - 1,), 1e-9, dtype=torch.float64)])
        u = with_spectrum(rng, sigma, tokens)
    elif kind == "equal":
        u = frame(rng, d, tokens)
    elif kind == "aligned":
        # every head reads the leading directions; scores that differ from head to head make its rows differ
        basis = torch.linalg.svd(u).U
        w_v = torch.cat([basis.mT[:width]] * heads)
        w_k = w_q * torch.linspace(-1, 1, heads, dtype=torch.float64).repeat_interleave(width)[:, None]
    elif kind == "spiky":
        # one token carries the input, so that softmax varies most
        u = torch.diag(sigma) @ torch.eye(d, tokens, dtype=torch.float64)
    elif kind == "equal tokens":
        # every head reads the one direction there is, and their outputs add up along it
        top = torch.eye(d, dtype=torch.float64)[::width].sum(dim=0) / heads**0.5
        u = top[:, None].expand(d, tokens) / tokens**0.5 + 1e-9 * u
        w_v = torch.zeros_like(w_v)
        w_v[::width] = top
    depth = 4 * bounds.flow.E2**2 * heads**2 * 10 ** float(rng.choice([0.0, 0.0, 2.0])) if deep else 1.0
    return _mend(Layer(u, w_q, w_k, w_v, heads, depth), rng)


def _mend(case: Layer, rng: Generator) -> Layer:
    """Scale to the hypotheses: σ_1(U) = 1, ‖W_Q^(i)ᵀW_K^(i)‖ ≤ √d_h, ‖W_V^(i)‖ = 1."""
    a = bounds.score_norm(case.w_q, case.w_k, case.heads)
    return replace(
        case,
        u=of_norm(case.u, 1.0),
        w_q=case.w_q / a if a > 0 else case.w_q,
        w_v=torch.cat([of_norm(v, 1.0) for v in case.w_v.chunk(case.heads)]),
    )


def _output(case: Layer) -> tuple[Tensor, Tensor]:
    """Singular values of U, and of Z."""
    y = bounds.multi_head_attention(case.u, case.w_q, case.w_k, case.w_v, case.heads)
    return torch.linalg.svdvals(case.u), torch.linalg.svdvals(case.u + y / case.depth**0.5)


def _unmet(case: Layer) -> tuple[str, ...]:
    values = max(float(torch.linalg.matrix_norm(v, 2)) for v in case.w_v.chunk(case.heads))
    scores = bounds.score_norm(case.w_q, case.w_k, case.heads)
    top = float(torch.linalg.matrix_norm(case.u, 2))
    return bounds.theorem4_unmet(
        top, scores=scores / (1 + 1e-9), values=values, heads=case.heads, depth=case.depth * (1 + 1e-9)
    )


def _worst(measured: Tensor, limit: Tensor) -> float:
    kept = measured > _FLOOR * measured[0]
    # nothing is left where the layer cancels its input, as a single token with W_V = −1 does
    return float((measured / limit.clamp_min(1e-300))[kept].max()) if bool(kept.any()) else 0.0


def _theorem4_ratio(case: Layer) -> float | None:
    if _unmet(case):
        return None
    sigma, z = _output(case)
    return _worst(z / z[0], bounds.theorem4_sharp(sigma, case.heads, case.depth))


def _corollary1_ratio(case: Layer, bound: Callable[[Tensor, int], Tensor]) -> float:
    sigma, z = _output(case)
    return _worst(z, bound(sigma, case.heads))


def _describe(case: Layer) -> str:
    d, tokens = case.u.shape
    return f"d={d}, h={case.heads}, L={tokens}, √D={case.depth**0.5:.3g}"


@dataclass(frozen=True)
class Built:
    """A spectrum, a length, heads and a depth for the construction of App. J."""

    sigma: Float[Tensor, " d_model"]
    tokens: int
    heads: int
    depth: float


def _draw_built(kind: str, rng: Generator) -> Built:
    heads, width = choose(rng, 1, 2, 4, 8), choose(rng, 2, 3, 6)
    d = heads * width
    sigma = spectrum(rng, d)
    if kind == "equal":
        sigma = torch.ones_like(sigma)
    elif kind == "cliff":
        cut = int(rng.integers(1, d))
        sigma = torch.cat([torch.ones(cut, dtype=torch.float64), torch.full((d - cut,), 1e-6, dtype=torch.float64)])
    tokens = d * choose(rng, 1, 2, 6)
    return Built(sigma, tokens, heads, 1.0 if kind == "one layer" else 10 ** float(rng.uniform(0, 4)))


def _built(case: Built) -> Tensor:
    layer = bounds.theorem4_construction(case.sigma, case.tokens, case.heads)
    y = bounds.multi_head_attention(layer.u, layer.w_q, layer.w_k, layer.w_v, case.heads)
    return torch.linalg.svdvals(layer.u + y / case.depth**0.5)


def _theorem4_lower_ratio(case: Built) -> float:
    z = _built(case)
    return float((bounds.theorem4_lower(case.sigma, case.heads, case.depth) * z[0] / z).max())


def _corollary1_lower_printed(case: Built) -> float:
    d, width = len(case.sigma), len(case.sigma) // case.heads
    k = torch.arange(1, d + 1)
    limit = torch.where(k <= d - width, 0.8 * case.sigma[-(-k // case.heads) - 1], 0.0)
    return float((limit / _built(case)).max())


def _describe_built(case: Built) -> str:
    d = len(case.sigma)
    return f"d={d}, h={case.heads}, L={case.tokens}, √D={case.depth**0.5:.3g}, σ_d={float(case.sigma[-1]):.2g}"


THEOREM_4 = Check(
    id="thm4-upper",
    title="Theorem 4 (i)",
    statement="σ_k(Z)/σ_1(Z) ≤ min_j (σ_{k−j+1} + c/√D σ_{⌊(j−1)/h⌋+1})/(1 − c/√D), c = cosh(1)√h, which implies it",
    instances=2000,
    kinds=("random", "rank one", "equal", "aligned", "spiky", "equal tokens"),
    draw=lambda kind, rng: _draw(kind, rng, deep=True),
    ratio=_theorem4_ratio,
    describe=_describe,
    mend=_mend,
)
THEOREM_4_LOWER = Check(
    id="thm4-lower",
    title="Theorem 4 (ii)",
    statement="σ_k(Z)/σ_1(Z) ≥ ¼(σ_{(i−1)d_h+⌈k/i⌉} + σ_{⌈k/i⌉}/√D) for ⌈k/i⌉ < d_h in the construction",
    instances=1000,
    kinds=("random", "equal", "cliff", "one layer"),
    draw=_draw_built,
    ratio=_theorem4_lower_ratio,
    describe=_describe_built,
)
COROLLARY_1 = replace(
    THEOREM_4,
    id="cor1",
    title="Corollary 1, upper",
    statement="σ_k(Z) ≤ (1 + cosh(1)√h) σ_{⌈k/(h+1)⌉} with D = 1",
    draw=lambda kind, rng: _draw(kind, rng, deep=False),
    ratio=lambda case: _corollary1_ratio(case, bounds.corollary1_upper),
    printed=lambda case: _corollary1_ratio(case, bounds.corollary1_printed),
    printed_statement="the claim: the same with index ⌊(k+1)/(h+1)⌋ + 1",
)
COROLLARY_1_LOWER = replace(
    THEOREM_4_LOWER,
    id="cor1-lower",
    title="Corollary 1, lower",
    statement="σ_k(Z) ≥ ⅘σ_{⌈k/h⌉} for k ≤ d − h in the construction with D = 1",
    kinds=("random", "equal", "cliff"),
    draw=lambda kind, rng: replace(_draw_built(kind, rng), depth=1.0),
    ratio=lambda case: float((bounds.corollary1_lower(case.sigma, case.heads) / _built(case)).max()),
    printed=_corollary1_lower_printed,
    printed_statement="the range alone: the same for k ≤ d − d_h",
)
