"""App. F.3 (Fig. 11): the numerical rank of MH-Attn(X) + X grows with the number of heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int

from rankscope.engine import Progress, silent
from rankscope.numerics import eps_ranks, relative_spectrum
from rankscope_paper.bounds.compression import multi_head_attention
from rankscope_paper.experiments.matrices import gaussian, generator, log_uniform, orthonormal

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class F3Size:
    """Width d, length L, numbers of heads, σ_d/σ_1 of the input, thresholds ε, and draws."""

    d_model: int
    tokens: int
    heads: tuple[int, ...]
    smallest: float
    eps: tuple[float, ...]
    seeds: int


FULL = F3Size(512, 2048, (1, 2, 4, 8, 16, 32, 64, 128), 1e-10, (1e-2, 1e-3, 1e-4, 1e-5), 3)
QUICK = F3Size(96, 384, (1, 2, 4, 8, 16), 1e-10, (1e-2, 1e-3, 1e-4, 1e-5), 3)


@dataclass(frozen=True)
class F3Result:
    """App. F.3.

    Attributes:
        quick: the size was reduced.
        seed: of every random matrix.
        d_model: d.
        tokens: L.
        heads: numbers of heads h.
        eps: thresholds ε.
        sigma_in: σ_j(X)/σ_1(X).
        sigma_out: σ_j(Y)/σ_1(Y) for each h, one row per draw and h.
        rank_in: ε-ranks of X.
        rank_out: ε-ranks of Y.
        monotone: by ε, whether the rank, averaged over the draws, never falls from one h to the next.
    """

    quick: bool
    seed: int
    d_model: int
    tokens: int
    heads: Int[np.ndarray, " heads"]
    eps: tuple[float, ...]
    sigma_in: Float[np.ndarray, " d_model"]
    sigma_out: Float[np.ndarray, "seeds heads d_model"]
    rank_in: Int[np.ndarray, " eps"]
    rank_out: Int[np.ndarray, "seeds heads eps"]
    monotone: tuple[bool, ...]
    id: str = "f3"

    SCHEMA: ClassVar = "rankscope/experiment@1"
    DIGITS: ClassVar = 9

    def to_frame(self) -> pd.DataFrame:
        """One row per draw, number of heads (0: the input) and singular value, with its relative size."""
        import pandas as pd

        rows = [(0, 0, j + 1, float(value)) for j, value in enumerate(self.sigma_in)]
        for draw, spectra in enumerate(self.sigma_out):
            for h, sigma in zip(self.heads, spectra, strict=True):
                rows += [(draw, int(h), j + 1, float(value)) for j, value in enumerate(sigma)]
        return pd.DataFrame(rows, columns=["seed", "heads", "j", "relative_sigma"])


def run_f3(
    quick: bool = False, seed: int = 0, *, size: F3Size | None = None, progress: Progress | None = None
) -> F3Result:
    """Measure the spectrum of Y = MH-Attn(X) + X for growing h, all else equal (App. F.3, Fig. 11).

    The paper prints neither size nor scale. Here X has log-uniform singular values over ten decades and, like tokens
    after a layer norm, entries of mean square 1; weights have variance 1/d, so that scores are of order 1. The three
    weight matrices are the same for every h: only their split into heads changes.

    Args:
        quick: a reduced size, the same code.
        seed: of every random matrix.
        size: another size.
        progress: called with the number of layers measured.
    """
    chosen = size or (QUICK if quick else FULL)
    d, report = chosen.d_model, progress or silent
    sigma = torch.from_numpy(log_uniform(d, chosen.smallest))
    spectra = torch.empty(chosen.seeds, len(chosen.heads), d, dtype=torch.float64)
    for draw in range(chosen.seeds):
        rng = generator(seed, 4, draw)
        x = orthonormal(rng, d, d) * sigma @ orthonormal(rng, chosen.tokens, d).T
        x *= (d * chosen.tokens) ** 0.5 / torch.linalg.matrix_norm(x)
        q, k, v = (gaussian(rng, d, d) / d**0.5 for _ in range(3))
        for row, h in enumerate(chosen.heads):
            report(draw * len(chosen.heads) + row, chosen.seeds * len(chosen.heads), f"f3: {h} heads")
            y = multi_head_attention(x, q, k, v, h).add_(x)
            # eigenvalues of y yᵀ would square the spectrum, which reaches below 1e-8
            spectra[draw, row] = relative_spectrum(torch.linalg.svdvals(torch.linalg.qr(y.T, mode="r").R))
    report(chosen.seeds * len(chosen.heads), chosen.seeds * len(chosen.heads), "f3")
    ranks = eps_ranks(spectra, chosen.eps).numpy()
    rising = np.diff(ranks.mean(axis=0), axis=0) >= 0
    return F3Result(
        quick=size is None and quick,
        seed=seed,
        d_model=d,
        tokens=chosen.tokens,
        heads=np.array(chosen.heads),
        eps=chosen.eps,
        sigma_in=sigma.numpy(),
        sigma_out=spectra.numpy(),
        rank_in=eps_ranks(sigma, chosen.eps).numpy(),
        rank_out=ranks,
        monotone=tuple(bool(ok) for ok in rising.all(axis=0)),
    )
