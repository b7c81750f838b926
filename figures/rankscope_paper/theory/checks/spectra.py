"""Random matrices and spectra that the instances of several checks are made of."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from rankscope_paper.experiments.matrices import Generator, gaussian


def choose(rng: Generator, *options: int) -> int:
    """One of some numbers."""
    return int(rng.choice(options))


def frame(rng: Generator, rows: int, columns: int) -> Float[Tensor, "rows columns"]:
    """Random orthonormal columns, or rows where there are fewer rows."""
    if rows < columns:
        return frame(rng, columns, rows).mT
    return torch.linalg.qr(gaussian(rng, rows, columns)).Q


def spectrum(rng: Generator, count: int) -> Float[Tensor, " count"]:
    """Descending singular values with σ_1 = 1: equal, geometric, polynomial, a cliff, or random."""
    kind = rng.integers(5)
    j = np.arange(count)
    values: np.ndarray
    if kind == 0:
        values = np.ones(count)
    elif kind == 1:
        values = 10 ** (-rng.uniform(0, 8) * j / max(count - 1, 1))
    elif kind == 2:
        values = (1.0 + j) ** -rng.uniform(0.5, 4)
    elif kind == 3:
        values = np.where(j < rng.integers(1, count + 1), 1.0, 10 ** -rng.uniform(1, 8))
    else:
        values = np.sort(rng.uniform(1e-3, 1, count))[::-1] / 1.0
        values = values / values[0]
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64))


def with_spectrum(rng: Generator, sigma: Float[Tensor, " k"], columns: int) -> Float[Tensor, "k columns"]:
    """A square or wide matrix with these singular values."""
    return frame(rng, len(sigma), len(sigma)) * sigma @ frame(rng, columns, len(sigma)).mT


def of_norm(w: Float[Tensor, "rows columns"], norm: float) -> Float[Tensor, "rows columns"]:
    """The matrix scaled to a spectral norm; a zero matrix stays zero."""
    size = float(torch.linalg.matrix_norm(w, 2))
    return w * (norm / size) if size > 0 else w
