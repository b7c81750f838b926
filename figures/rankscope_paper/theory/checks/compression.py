"""Checks of Theorems 3, 5 and 6: attention matrices of low rank."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankscope_paper import bounds
from rankscope_paper.bounds import Attention
from rankscope_paper.experiments.matrices import Generator, gaussian
from rankscope_paper.theory.check import Check
from rankscope_paper.theory.checks.spectra import choose, frame, of_norm, spectrum, with_spectrum


@dataclass(frozen=True)
class Compressed:
    """A vocabulary Ξ, which of its columns the input holds, attention matrices, and the rank r they are cut to."""

    xi: Float[Tensor, "d_model vocabulary"]
    columns: Int[Tensor, " tokens"]
    w_q: Float[Tensor, "d_model d_model"]
    w_k: Float[Tensor, "d_model d_model"]
    w_v: Float[Tensor, "d_model d_model"]
    heads: int
    rank: int


def _draw(kind: str, rng: Generator, heads: int) -> Compressed:
    d, vocabulary = choose(rng, 4, 8, 16), choose(rng, 16, 32)
    tokens, rank = choose(rng, 4, 16, 64), int(rng.integers(1, d))
    xi = with_spectrum(rng, spectrum(rng, d), vocabulary)
    columns = rng.integers(0, vocabulary, tokens)
    w_q, w_k, w_v = (gaussian(rng, d, d) for _ in range(3))
    if kind == "one token":
        # the token that lies farthest from the leading subspace, L times
        basis = torch.linalg.svd(xi).U[:, :rank]
        away = torch.linalg.vector_norm(xi - basis @ (basis.mT @ xi), dim=0)
        columns = columns * 0 + int(away.argmax())
    elif kind == "axes":
        xi = torch.cat([torch.diag(spectrum(rng, d)), torch.zeros(d, vocabulary - d, dtype=torch.float64)], dim=1)
        columns = columns * 0 + rank
        w_v = frame(rng, d, d)
    elif kind == "saturated":
        xi, w_q, w_k = 3 * xi, 3 * w_q, 3 * w_k
    elif kind == "aligned":
        w_k = w_q
    case = Compressed(xi, torch.from_numpy(columns), w_q, w_k, w_v, heads, rank)
    return _mend(case, rng)


def _mend(case: Compressed, rng: Generator) -> Compressed:
    """Scale the matrices to Theorem 5's hypotheses with C = 1: ‖x‖ ≤ 1, ‖W_Q^(i)ᵀW_K^(i)‖, ‖W_V^(i)‖ ≤ √d_h."""
    width = case.w_q.shape[0] // case.heads
    xi = case.xi / max(1.0, float(torch.linalg.vector_norm(case.xi, dim=0).max()))
    a = bounds.score_norm(case.w_q, case.w_k, case.heads)
    w_q = case.w_q / a if a > 0 else case.w_q
    w_v = torch.cat([of_norm(v, width**0.5) for v in case.w_v.chunk(case.heads)])
    return replace(case, xi=xi, w_q=w_q, w_v=w_v)


def compression_error(case: Compressed) -> tuple[float, float]:
    """Measure ‖MH-Attn(U; W) − MH-Attn(U; WU_rU_rᵀ)‖_F, and the largest ‖x − U_rU_rᵀx‖ over the vocabulary."""
    basis = torch.linalg.svd(case.xi).U[:, : case.rank]
    u = case.xi[:, case.columns]
    q, k, v = (bounds.projected(w, basis) for w in (case.w_q, case.w_k, case.w_v))
    whole = bounds.multi_head_attention(u, case.w_q, case.w_k, case.w_v, case.heads)
    error = torch.linalg.matrix_norm(whole - bounds.multi_head_attention(u, q, k, v, case.heads))
    away = torch.linalg.vector_norm(case.xi - basis @ (basis.mT @ case.xi), dim=0).max()
    return float(error), float(away)


def _facts(case: Compressed) -> dict[str, float]:
    return {
        "scores": bounds.score_norm(case.w_q, case.w_k, case.heads),
        "values": bounds.value_norm(case.w_v, case.heads),
        "radius": float(torch.linalg.vector_norm(case.xi, dim=0).max()),
    }


def _upper_ratio(case: Compressed) -> float | None:
    error, away = compression_error(case)
    facts, tokens = _facts(case), len(case.columns)
    limit = bounds.theorem5_upper(away, tokens=tokens, **facts)
    repeats = int(torch.bincount(case.columns).max())
    sigma = torch.linalg.svdvals(case.xi)
    distinct = bounds.theorem5_distinct(sigma, case.rank, tokens=tokens, repeats=repeats, **facts)
    # where nothing is cut, both sides are rounding
    return None if away < 1e-9 else error / min(limit, distinct)


def _upper_printed(case: Compressed) -> float | None:
    error, _ = compression_error(case)
    sigma = torch.linalg.svdvals(case.xi)
    if float(sigma[case.rank]) < 1e-9:
        return None
    return error / bounds.theorem3_printed(float(sigma[case.rank]), d_model=case.xi.shape[0], bound=1.0)


def _describe(case: Compressed) -> str:
    repeats = int(torch.bincount(case.columns).max())
    d, tokens = case.xi.shape[0], len(case.columns)
    return f"d={d}, h={case.heads}, L={tokens}, r={case.rank}, a token occurs {repeats} times"


@dataclass(frozen=True)
class Tight:
    """A spectrum, a length, heads and a rank for one of the tight constructions, and a value matrix of that rank."""

    sigma: Float[Tensor, " d_model"]
    tokens: int
    heads: int
    rank: int
    value: Float[Tensor, "d_model d_model"]


def _draw_tight(kind: str, rng: Generator, heads: int, width: int) -> Tight:
    d = heads * width
    rank = int(rng.integers(1, width if heads > 1 else d))
    sigma = spectrum(rng, d)
    if kind == "equal":
        sigma = torch.full_like(sigma, float(rng.uniform(0.1, 1)))
    left, right = gaussian(rng, d, rank), gaussian(rng, rank, d)
    if kind == "leading":
        left, right = torch.eye(d, rank, dtype=torch.float64), torch.eye(rank, d, dtype=torch.float64)
    longest = 50 if heads == 1 else 10
    longer = choose(rng, 1, 2, longest) if kind == "long" else choose(rng, 1, 2)
    return Tight(sigma, d * longer, heads, rank, left @ right)


def _best_error(instance: Attention, rank: int, value: Float[Tensor, "d_model d_model"]) -> float:
    """Smallest ‖(W_V − W̃_V)UG‖₂ over all W̃_V of rank r, and over the one given, which must not do better.

    W̃_V U G can be any matrix of rank r whose rows are combinations of those of UG, if U has full rank, so the best is
    the truncated SVD of W_V U G (Eckart and Young).
    """
    output = bounds.multi_head_attention(instance.u, instance.w_q, instance.w_k, instance.w_v, instance.heads)
    other = bounds.multi_head_attention(instance.u, instance.w_q, instance.w_k, value, instance.heads)
    best = float(torch.linalg.svdvals(output)[rank])
    return min(best, float(torch.linalg.matrix_norm(output - other, 2)))


def _theorem3_lower_ratio(case: Tight, as_printed: bool = False) -> float:
    instance = bounds.theorem3_construction(case.sigma, case.tokens, as_printed=as_printed)
    return bounds.theorem3_lower(float(case.sigma[case.rank])) / _best_error(instance, case.rank, case.value)


def _theorem6_lower_ratio(case: Tight) -> float:
    instance = bounds.theorem6_construction(case.sigma, case.tokens, case.heads)
    return bounds.theorem6_lower(float(case.sigma[case.rank])) / _best_error(instance, case.rank, case.value)


def _theorem6_upper_ratio(case: Tight) -> float:
    one = bounds.theorem6_construction(case.sigma, case.tokens, case.heads)
    two = bounds.theorem6_sketches(case.sigma, case.tokens, case.heads, case.rank)
    outputs = [bounds.multi_head_attention(a.u, a.w_q, a.w_k, a.w_v, case.heads) for a in (one, two)]
    error = float(torch.linalg.matrix_norm(outputs[0] - outputs[1], 2))
    return error / bounds.theorem6_attained(case.sigma, case.rank, case.heads)


@dataclass(frozen=True)
class Repeated:
    """A vocabulary whose tokens are repeated one at a time, a value matrix, and the rank of its approximation."""

    xi: Float[Tensor, "d_model vocabulary"]
    w_q: Float[Tensor, "d_model d_model"]
    w_k: Float[Tensor, "d_model d_model"]
    w_v: Float[Tensor, "d_model d_model"]
    approximations: tuple[Attention, ...]
    tokens: int
    heads: int
    rank: int


def flat_projector(d: int, rank: int) -> Float[Tensor, "d d"]:
    """Orthogonal projector of some rank whose diagonal is constant: real Fourier vectors, cosines with their sines."""
    index = torch.arange(d, dtype=torch.float64)
    parts = [torch.ones(d, 1, dtype=torch.float64) / d**0.5] if rank % 2 else []
    for frequency in range(1, rank // 2 + 1):
        angle = 2 * torch.pi * frequency * index / d
        parts.append(torch.stack([angle.cos(), angle.sin()], dim=1) * (2 / d) ** 0.5)
    basis = torch.cat(parts, dim=1)
    return basis @ basis.mT


def _draw_repeated(kind: str, rng: Generator) -> Repeated:
    heads = choose(rng, 1, 2)
    d, tokens = choose(rng, 4, 8), choose(rng, 1, 9, 100)
    rank = int(rng.integers(1, d - 1))
    xi, w_v = with_spectrum(rng, spectrum(rng, d), choose(rng, d, 2 * d)), gaussian(rng, d, d)
    w_q, w_k = gaussian(rng, d, d), gaussian(rng, d, d)
    left, sigma, right = torch.linalg.svd(w_v @ xi, full_matrices=False)
    best = (left[:, :rank] * sigma[:rank]) @ right[:rank] @ torch.linalg.pinv(xi)
    values = [best, _least_worst(w_v, xi, best, rank), gaussian(rng, d, rank) @ gaussian(rng, rank, d)]
    if kind == "attained":
        xi = float(rng.uniform(0.1, 1)) * torch.eye(d, dtype=torch.float64)
        w_v = d**0.5 * torch.eye(d, dtype=torch.float64)
        values = [w_v @ flat_projector(d, rank)]
    made = tuple(Attention(xi, gaussian(rng, d, d), gaussian(rng, d, d), value, heads) for value in values)
    return Repeated(xi, w_q, w_k, w_v, made, tokens, heads, rank)


def _least_worst(w_v: Tensor, xi: Tensor, start: Tensor, rank: int) -> Tensor:
    """Value matrix of rank r whose worst token is as little wrong as L-BFGS gets it."""
    left, sigma, right = torch.linalg.svd(start)
    factors = [
        (left[:, :rank] * sigma[:rank]).contiguous().requires_grad_(),
        right[:rank].contiguous().requires_grad_(),
    ]
    optimiser = torch.optim.LBFGS(factors, max_iter=60, line_search_fn="strong_wolfe")

    def worst() -> Tensor:
        optimiser.zero_grad()
        off = torch.linalg.vector_norm((w_v - factors[0] @ factors[1]) @ xi, dim=0)
        value = torch.linalg.vector_norm(off, ord=16)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimiser.step(worst)  # type: ignore[arg-type]
    return (factors[0] @ factors[1]).detach()


def _one_token_ratio(case: Repeated) -> float | None:
    """Bound over the worst token's error, of the approximation that does best."""
    limit = bounds.one_token_lower(case.w_v, case.xi, case.rank, case.tokens)
    if limit < 1e-9:
        return None
    errors = []
    for other in case.approximations:
        inputs = case.xi.mT[:, :, None].expand(-1, -1, case.tokens)
        whole = bounds.multi_head_attention(inputs, case.w_q, case.w_k, case.w_v, case.heads)
        cut = bounds.multi_head_attention(inputs, other.w_q, other.w_k, other.w_v, case.heads)
        errors.append(float(torch.linalg.matrix_norm(whole - cut).max()))
    return limit / min(errors)


def _describe_tight(case: Tight) -> str:
    return f"d={len(case.sigma)}, h={case.heads}, L={case.tokens}, r={case.rank}, σ_d={float(case.sigma[-1]):.2g}"


_UPPER = (
    "‖MH-Attn(U; W) − MH-Attn(U; WU_rU_rᵀ)‖_F ≤ √L·v·(δ + C·min(2, 2aCδ)), δ ≤ σ_{r+1}, and its form for few repeats"
)
_PRINTED = "the claim: C(1 + 2C³)·√d·σ_{r+1}, without √L"
_KINDS = ("random", "one token", "axes", "saturated", "aligned")

THEOREM_3 = Check(
    id="thm3",
    title="Theorem 3 (i)",
    statement=_UPPER + ", one head",
    instances=2000,
    kinds=_KINDS,
    draw=lambda kind, rng: _draw(kind, rng, 1),
    ratio=_upper_ratio,
    describe=_describe,
    mend=_mend,
    printed=_upper_printed,
    printed_statement=_PRINTED,
)
THEOREM_5 = replace(
    THEOREM_3,
    id="thm5",
    title="Theorem 5",
    statement=_UPPER + ", several heads",
    draw=lambda kind, rng: _draw(kind, rng, choose(rng, 2, 4)),
)
ONE_TOKEN = Check(
    id="one-token",
    title="Theorems 3 (i), 5: any W̃",
    statement="for any W̃ of rank r, a token repeated L times has an error of at least √(L/N)(Σ_{i>r} σ_i(W_VΞ)²)^{1/2}",
    instances=200,
    kinds=("random", "attained"),
    draw=_draw_repeated,
    ratio=_one_token_ratio,
    describe=lambda case: f"d={case.xi.shape[0]}, N={case.xi.shape[1]}, h={case.heads}, L={case.tokens}, r={case.rank}",
)
THEOREM_3_LOWER = Check(
    id="thm3-lower",
    title="Theorem 3 (ii)",
    statement="no W̃_V of rank r comes nearer than σ_{r+1}/4 in the construction, with scores log max(4d, L)",
    instances=1000,
    kinds=("random", "equal", "leading", "long"),
    draw=lambda kind, rng: _draw_tight(kind, rng, 1, choose(rng, 3, 6, 12)),
    ratio=_theorem3_lower_ratio,
    describe=_describe_tight,
    printed=lambda case: _theorem3_lower_ratio(case, as_printed=True),
    printed_statement="the proof alone: the same with scores log(4d)",
)
THEOREM_6_LOWER = replace(
    THEOREM_3_LOWER,
    id="thm6-lower",
    title="Theorem 6 (i)",
    statement="no W̃_V of rank r comes nearer than σ_{r+1}/2 in the construction",
    draw=lambda kind, rng: _draw_tight(kind, rng, choose(rng, 2, 4, 8), choose(rng, 2, 3, 6)),
    ratio=_theorem6_lower_ratio,
    printed=None,
    printed_statement="",
)
THEOREM_6_UPPER = replace(
    THEOREM_6_LOWER,
    id="thm6-upper",
    title="Theorem 6 (ii)",
    statement="head-dependent sketches of rank r + 1 come within (√5/2)σ_{hr+1} (printed: 4√h σ_{hr+1}) there",
    ratio=_theorem6_upper_ratio,
)
