"""App. F.2 (Fig. 10): how well h sparse sketches of rank r, one per head, catch the row space of the input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor

from rankscope.engine import Progress, silent
from rankscope_paper.experiments.fit import Slope, exponent, slope_of_seeds
from rankscope_paper.experiments.matrices import Generator, gaussian, generator, log_uniform, orthonormal

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class F2Size:
    """Width d, length L, per-head rank r, numbers of heads, σ_d (σ_1 = 1), and draws."""

    d_model: int
    tokens: int
    rank: int
    heads: tuple[int, ...]
    smallest: float
    seeds: int


FULL = F2Size(2048, 4096, 4, (1, 2, 4, 8, 16, 32, 64, 128), 1e-10, 5)
QUICK = F2Size(256, 512, 2, (1, 2, 4, 8, 16, 32), 1e-10, 5)


@dataclass(frozen=True)
class F2Result:
    """App. F.2.

    Attributes:
        quick: the size was reduced.
        seed: of every random matrix.
        d_model: d.
        tokens: L; the distance does not depend on it, see `sketch_distance`.
        rank: rows r of one head's sketch.
        heads: numbers of heads h.
        sigma: singular values of X, σ_1 = 1.
        sparse: distance (eq. 18) of h sketches with d/h non-zero entries per row.
        dense: the same of one dense Gaussian sketch with as many rows, h·r.
        sparse_index: largest j with σ_j at or above the distance: the rank that the sketch is worth.
        dense_index: the same of the dense sketch.
        slope: exponent of that rank over h, from the first h at which it exceeds 2 in every draw.
    """

    quick: bool
    seed: int
    d_model: int
    tokens: int
    rank: int
    heads: Int[np.ndarray, " heads"]
    sigma: Float[np.ndarray, " d_model"]
    sparse: Float[np.ndarray, "heads seeds"]
    dense: Float[np.ndarray, "heads seeds"]
    sparse_index: Int[np.ndarray, "heads seeds"]
    dense_index: Int[np.ndarray, "heads seeds"]
    slope: Slope
    id: str = "f2"

    SCHEMA: ClassVar = "rankscope/experiment@1"
    DIGITS: ClassVar = 9

    def to_frame(self) -> pd.DataFrame:
        """One row per kind of sketch, number of heads and draw."""
        import pandas as pd

        kinds = {"sparse": (self.sparse, self.sparse_index), "dense": (self.dense, self.dense_index)}
        rows = [
            (kind, int(h), draw, self.rank * int(h), float(distance[row, draw]), int(index[row, draw]))
            for kind, (distance, index) in kinds.items()
            for row, h in enumerate(self.heads)
            for draw in range(distance.shape[1])
        ]
        return pd.DataFrame(rows, columns=["sketch", "heads", "seed", "rows", "distance", "index"])


def sparse_sketch(rng: Generator, rows: int, d_model: int, heads: int) -> Float[Tensor, "rows d_model"]:
    """Rows with exactly d/h non-zero entries at random places, normally distributed (App. F.2)."""
    sketch = np.zeros((rows, d_model))
    for row in sketch:
        row[rng.choice(d_model, d_model // heads, replace=False)] = rng.standard_normal(d_model // heads)
    return torch.from_numpy(sketch)


def sketch_distance(
    sigma: Float[np.ndarray, " d_model"], sketch: Float[Tensor, "rows d_model"], u: Float[Tensor, "d_model d_model"]
) -> float:
    """‖QQᵀXᵀ − Xᵀ‖₂ with Q = orth(XᵀWᵀ) and X = U diag(σ) Vᵀ (eq. 18).

    V has orthonormal columns and multiplies both sides from the left, so it drops out: the distance is that of
    diag(σ)Uᵀ, a matrix of d columns whatever the length of the input. The norm is the root of the largest eigenvalue
    of diag(σ)(I − QQᵀ)diag(σ), found by Lanczos iterations.
    """
    s = torch.from_numpy(np.asarray(sigma))
    q = torch.linalg.qr(s[:, None] * (sketch @ u).T).Q

    def residual(x: np.ndarray) -> Float[np.ndarray, " d_model"]:
        y = s * torch.from_numpy(np.ascontiguousarray(x, dtype=np.float64)).ravel()
        return (s * (y - q @ (q.T @ y))).numpy()

    size = len(sigma)
    operator = LinearOperator((size, size), matvec=residual, dtype=np.float64)
    largest = eigsh(operator, k=1, which="LA", return_eigenvectors=False, tol=1e-10, v0=np.ones(size))
    return float(max(largest[0], 0.0)) ** 0.5


def run_f2(
    quick: bool = False, seed: int = 0, *, size: F2Size | None = None, progress: Progress | None = None
) -> F2Result:
    """Measure the distance between the row spaces of X and of its sketches for growing h (App. F.2, Fig. 10).

    X (2048 × 4096) has exponentially decaying singular values; the paper does not print the rate, here they fall from
    1 to 1e-10. A dense sketch with the same number of rows stands beside the sparse one.

    Args:
        quick: a reduced size, the same code.
        seed: of every random matrix.
        size: another size.
        progress: called with the number of sketches measured.
    """
    chosen = size or (QUICK if quick else FULL)
    sigma = log_uniform(chosen.d_model, chosen.smallest)
    shape = (len(chosen.heads), chosen.seeds)
    distance = {"sparse": np.empty(shape), "dense": np.empty(shape)}
    report = progress or silent
    for draw in range(chosen.seeds):
        rng = generator(seed, 3, draw)
        u = orthonormal(rng, chosen.d_model, chosen.d_model)
        for row, h in enumerate(chosen.heads):
            report(draw * shape[0] + row, shape[0] * shape[1], f"f2: {h} heads")
            rows = h * chosen.rank
            distance["sparse"][row, draw] = sketch_distance(sigma, sparse_sketch(rng, rows, chosen.d_model, h), u)
            distance["dense"][row, draw] = sketch_distance(sigma, gaussian(rng, rows, chosen.d_model), u)
    report(shape[0] * shape[1], shape[0] * shape[1], "f2")
    index = {kind: (sigma >= values[..., None]).sum(-1) for kind, values in distance.items()}
    heads = np.array(chosen.heads)
    return F2Result(
        quick=size is None and quick,
        seed=seed,
        d_model=chosen.d_model,
        tokens=chosen.tokens,
        rank=chosen.rank,
        heads=heads,
        sigma=sigma,
        sparse=distance["sparse"],
        dense=distance["dense"],
        sparse_index=index["sparse"],
        dense_index=index["dense"],
        slope=_growth(heads, index["sparse"]),
    )


def _growth(heads: Int[np.ndarray, " heads"], index: Int[np.ndarray, "heads seeds"]) -> Slope:
    grown = index.min(axis=1) > 2
    x = heads[grown].astype(float)
    return slope_of_seeds(np.array([exponent(x, column.astype(float)) for column in index[grown].T]))
