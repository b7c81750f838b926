"""Check of Theorem 2: residual MLPs on patches."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope_paper import bounds
from rankscope_paper.experiments.matrices import Generator, gaussian
from rankscope_paper.theory.check import Check
from rankscope_paper.theory.checks.spectra import choose, frame

ACTIVATIONS = {
    "identity": lambda x: x,
    "relu": torch.relu,
    "abs": torch.abs,
    "sin": torch.sin,
    "tanh": torch.tanh,
    "gelu": torch.nn.functional.gelu,
    "flips": lambda x: torch.where(torch.floor(1000 * x) % 2 == 0, x, -x),
}
"""Functions with |ω(x)| ≤ |x|."""


@dataclass(frozen=True)
class Mlp:
    """Φ(X) = W_3X + W_2 ω(W_1X)."""

    w1: Float[Tensor, "d_ff k"]
    w2: Float[Tensor, "d_model d_ff"]
    w3: Float[Tensor, "d_model k"]
    x: Float[Tensor, "k tokens"]
    activation: str


def _draw(kind: str, rng: Generator) -> Mlp:
    k, tokens = choose(rng, 1, 2, 4, 8), choose(rng, 8, 24, 48)
    d_ff, d = choose(rng, 8, 16, 32), choose(rng, 12, 24)
    activation = str(rng.choice(list(ACTIVATIONS)))
    w1, w2, w3, x = gaussian(rng, d_ff, k), gaussian(rng, d, d_ff), gaussian(rng, d, k), gaussian(rng, k, tokens)
    if kind == "rank one":
        w1, x = w1[:, :1] * torch.ones(1, k), x[:, :1] * torch.ones(1, tokens)
        x = x * torch.from_numpy(rng.choice([-1.0, 1.0], (1, tokens)))
    elif kind == "saturated":
        x = x * 10 ** rng.uniform(1, 4)
    elif kind == "tight":
        # W_1X has equal singular values, W_2 is an isometry, and W_3X, far larger, lies in other directions
        k = min(k, d_ff, d // 2, tokens // 2)
        basis = frame(rng, d, d)
        w1, x = frame(rng, d_ff, k), frame(rng, k, tokens)
        w2 = basis[:, k:] @ frame(rng, d - k, d_ff)
        w3, activation = 1e3 * basis[:, :k], "identity"
        w2, x = (basis[:, k : 2 * k] @ w1.mT, x) if rng.integers(2) else (w2, x)
    elif kind == "spread":
        # one direction, whose entries get signs as if by chance: all singular values of ω(W_1X) are of one size
        w1 = 1 + 0.3 * torch.from_numpy(rng.uniform(size=(d_ff, 1))).expand(d_ff, k)
        x = (1 + 0.3 * torch.from_numpy(rng.uniform(size=(1, tokens)))).expand(k, tokens)
        w2, w3, activation = frame(rng, d, d_ff), 0 * w3, "flips"
    elif kind == "aligned":
        w2, w3 = w1.mT.new_ones(d, 1) @ w1.norm(dim=1)[None] + 0.01 * w2, 0 * w3
    return Mlp(w1, w2, w3, x, activation)


def _ratio(case: Mlp) -> float | None:
    pre = case.w1 @ case.x
    phi = case.w3 @ case.x + case.w2 @ ACTIVATIONS[case.activation](pre)
    levels = bounds.theorem2_levels(phi, case.w2, pre)
    if not bool(torch.isfinite(levels).all()):
        return None
    worst = 0.0
    for j, level in enumerate(levels.tolist(), start=1):
        if level > 1e-12:
            worst = max(worst, j / bounds.theorem2_count(level, case.x.shape[0]))
    return worst


def _describe(case: Mlp) -> str:
    (d_ff, k), (d, _) = case.w1.shape, case.w2.shape
    return f"k={k}, d_ff={d_ff}, d={d}, L={case.x.shape[1]}, ω={case.activation}"


THEOREM_2 = Check(
    id="thm2",
    title="Theorem 2",
    statement="#{j: σ_j(Φ(X)) > ε‖W_2‖‖W_1X‖} ≤ (1 + ε⁻²)k for every ε > 0",
    instances=12_000,
    kinds=("random", "rank one", "saturated", "tight", "spread", "aligned"),
    draw=_draw,
    ratio=_ratio,
    describe=_describe,
    mend=lambda case, rng: case,
)

__all__ = ["ACTIVATIONS", "THEOREM_2", "Mlp"]
