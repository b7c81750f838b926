"""App. F.1 (Fig. 9): the error of truncated attention against σ_{r+1}, and against the width d."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from rankscope.engine import Progress, silent
from rankscope_paper.experiments.fit import Slope, exponent, slope_of_points, slope_of_seeds
from rankscope_paper.experiments.matrices import READINGS, generator, log_uniform, random_layer, truncation_errors

if TYPE_CHECKING:
    import pandas as pd

CLEAR = 10.0
"""A rank counts as clear of the spectrum's end while σ_{r+1}² is this many times σ_d²."""


@dataclass(frozen=True)
class F1Size:
    """Size of the experiment.

    Attributes:
        d_model: width d of the left panel.
        tokens: vocabulary size N, and length of the input.
        seeds: draws of the left panel; the first is measured at every rank, the others at ``some_ranks`` ranks.
        some_ranks: see ``seeds``.
        widths: widths of the right panel.
        rank: r of the right panel.
        decay: σ_j = exp(−(j−1)/decay) in the right panel, at every width.
        repeats: draws per width.
    """

    d_model: int
    tokens: int
    seeds: int
    some_ranks: int
    widths: tuple[int, ...]
    rank: int
    decay: float
    repeats: int


FULL = F1Size(512, 4096, 5, 32, (128, 192, 256, 384, 512, 768, 1024), 16, 16.0, 16)
QUICK = F1Size(96, 512, 8, 24, (64, 96, 128, 192, 256), 8, 8.0, 48)


@dataclass(frozen=True)
class F1Run:
    """One seed of the left panel: ‖Y − Ỹ‖_F and σ_{r+1} at each rank r, and the norm of all that is cut.

    Attributes:
        seed: index of the draw.
        ranks: r.
        sigma: σ_{r+1}.
        tail: (σ_{r+1}² + … + σ_d²)^{1/2}.
        error: ‖Y − Ỹ‖_F.
    """

    seed: int
    ranks: Int[np.ndarray, " ranks"]
    sigma: Float[np.ndarray, " ranks"]
    tail: Float[np.ndarray, " ranks"]
    error: Float[np.ndarray, " ranks"]


@dataclass(frozen=True)
class F1Reading:
    """The left panel under one reading of the spectrum.

    Attributes:
        name: key in `READINGS`.
        smallest: σ_d.
        runs: one per seed.
        slope: of the error over σ_{r+1}, at ranks clear of the spectrum's end.
        slope_all: the same at all ranks. Near r = d − 1 hardly anything is left to cut beyond σ_{r+1}, and the
            Frobenius norm falls faster than σ_{r+1}.
        slope_tail: of the error over the norm of all that is cut, at all ranks.
    """

    name: str
    smallest: float
    runs: tuple[F1Run, ...]
    slope: Slope
    slope_all: Slope
    slope_tail: Slope


@dataclass(frozen=True)
class F1Widths:
    """The right panel: ‖Y − Ỹ‖_F at one rank, for every width and draw."""

    rank: int
    widths: Int[np.ndarray, " widths"]
    error: Float[np.ndarray, "widths repeats"]
    slope: Slope


@dataclass(frozen=True)
class F1Result:
    """App. F.1: `readings` is the left panel of Fig. 9, `width` the right one."""

    quick: bool
    seed: int
    d_model: int
    tokens: int
    readings: tuple[F1Reading, ...]
    width: F1Widths
    id: str = "f1"

    SCHEMA: ClassVar = "rankscope/experiment@1"
    DIGITS: ClassVar = 9

    def to_frame(self) -> pd.DataFrame:
        """One row per panel, reading or width, seed and rank."""
        import pandas as pd

        rows: list[tuple[Any, ...]] = []
        for reading in self.readings:
            for run in reading.runs:
                columns = (run.ranks, run.sigma, run.tail, run.error)
                rows += [("sigma", reading.name, self.d_model, run.seed, *row) for row in zip(*columns, strict=True)]
        for d, errors in zip(self.width.widths, self.width.error, strict=True):
            rank = self.width.rank
            rows += [("width", "", int(d), seed, rank, None, None, error) for seed, error in enumerate(errors)]
        names = ["panel", "reading", "d_model", "seed", "rank", "sigma_next", "tail", "error"]
        return pd.DataFrame(rows, columns=names)


def run_f1(
    quick: bool = False, seed: int = 0, *, size: F1Size | None = None, progress: Progress | None = None
) -> F1Result:
    """Measure both panels of Fig. 9 (App. F.1).

    Left: X (512 × 4096) with log-uniform singular values under both readings of their range, random attention
    matrices, and the error of the whole layer truncated by Theorem 3's construction at every rank 1 … d − 1. Right:
    the error at a fixed rank for several widths, the leading singular values held fixed. The slopes should be 1 and ½.

    Args:
        quick: a reduced size, the same code.
        seed: of every random matrix.
        size: another size.
        progress: called with the number of layers measured.
    """
    chosen = size or (QUICK if quick else FULL)
    total = len(READINGS) * chosen.seeds + len(chosen.widths) * chosen.repeats
    report, done = progress or silent, 0
    readings = []
    for number, (name, smallest) in enumerate(READINGS.items()):
        runs = []
        for draw in range(chosen.seeds):
            report(done, total, f"f1: error against σ, {name}")
            runs.append(_run(chosen, smallest, (seed, 1, number), draw))
            done += 1
        readings.append(_reading(name, smallest, runs))
    errors = np.empty((len(chosen.widths), chosen.repeats))
    for row, d in enumerate(chosen.widths):
        sigma = np.exp(-np.arange(d) / chosen.decay)
        for draw in range(chosen.repeats):
            report(done, total, f"f1: error against d, {d}")
            layer = random_layer(generator(seed, 2, d, draw), sigma, chosen.tokens)
            errors[row, draw] = truncation_errors(layer, [chosen.rank])[0]
            done += 1
    report(total, total, "f1")
    widths = np.array(chosen.widths)
    slope = slope_of_points(np.repeat(widths.astype(float), chosen.repeats), errors.ravel())
    panel = F1Widths(chosen.rank, widths, errors, slope)
    return F1Result(size is None and quick, seed, chosen.d_model, chosen.tokens, tuple(readings), panel)


def _run(size: F1Size, smallest: float, key: tuple[int, ...], draw: int) -> F1Run:
    d = size.d_model
    count = d - 1 if draw == 0 else min(size.some_ranks, d - 1)
    ranks = np.unique(np.linspace(1, d - 1, count).round().astype(int))
    sigma = log_uniform(d, smallest)
    tail = np.sqrt(np.cumsum(np.square(sigma)[::-1])[::-1])
    error = truncation_errors(random_layer(generator(*key, draw), sigma, size.tokens), ranks.tolist())
    return F1Run(draw, ranks, sigma[ranks], tail[ranks], error)


def _reading(name: str, smallest: float, runs: Sequence[F1Run]) -> F1Reading:
    def over_seeds(slopes: list[float]) -> Slope:
        return slope_of_seeds(np.array(slopes))

    clear = [np.square(run.sigma) >= CLEAR * smallest**2 for run in runs]
    return F1Reading(
        name,
        smallest,
        tuple(runs),
        slope=over_seeds([exponent(r.sigma[keep], r.error[keep]) for r, keep in zip(runs, clear, strict=True)]),
        slope_all=over_seeds([exponent(run.sigma, run.error) for run in runs]),
        slope_tail=over_seeds([exponent(run.tail, run.error) for run in runs]),
    )
