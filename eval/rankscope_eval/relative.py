"""Relative scores: geometric means over data sets of score / baseline score, with bootstrap intervals.

A score moves with the series that happen to be in a data set and with the paths that a model happens to draw, and a
mean over data sets moves with the choice of data sets. All of that shows in how ratios differ from series to series and
from data set to data set, so resampling these says how far a relative score can be trusted.

Percentiles of a bootstrap of n things are too narrow where n is small: they take the n for all there is, and a normal
distribution where Student's belongs. Their distance from the score, in logarithms, is therefore stretched by
√(n/(n − 1)) · t(n − 1)/z, which makes them Student's intervals where ratios are log-normal (Hesterberg, *What Teachers
Should Know About the Bootstrap*, 2015, widens them by the same two factors).
"""

from __future__ import annotations

import math
import statistics
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

Sums = Float[np.ndarray, "series 4"]
"""Quantile loss, |y|, scaled error and its count of every series."""
Bands = Float[np.ndarray, "series bands 4"]
"""The same by part of the horizon: see `rankscope_eval.metrics.Scores`."""

Interval = tuple[float, float]

RESAMPLES = 2000
LEVEL = 0.95
FEWEST = 3
"""Data sets, or series of a single one, that an interval needs."""
CLIP = (0.01, 100.0)
"""Ratios of skill scores are clipped to these."""
_CELLS = 1 << 22
"""Series drawn at a time."""
Scored = Mapping[str, float | None]
"""Score of one model by data set."""


@dataclass(frozen=True)
class Relative:
    """A geometric mean, the number of data sets in it, and the ones left out."""

    value: float
    datasets: int
    left_out: tuple[str, ...] = ()


def geometric_mean(values: Iterable[float]) -> float:
    """Geometric mean of positive numbers; NaN where there are none.

    >>> round(geometric_mean([2.0, 8.0]), 12)
    4.0
    """
    known = list(values)
    return statistics.geometric_mean(known) if known else math.nan


def relative_scores(model: Scored, baseline: Scored) -> Relative:
    """Geometric mean over data sets of ``model[d] / baseline[d]`` (Chronos' aggregated relative score).

    A data set counts only where both scores are finite and positive, since the ratio has a logarithm only
    there; the others (missing, NaN, infinite or zero) are named in ``left_out``.

    >>> relative_scores({"a": 1.0, "b": 2.0, "c": 0.0}, {"a": 2.0, "b": 1.0, "c": 1.0})
    Relative(value=1.0, datasets=2, left_out=('c',))
    """
    ratios = usable_ratios(model, baseline)
    left_out = tuple(name for name in {**model, **baseline} if name not in ratios)
    return Relative(geometric_mean(ratios.values()), len(ratios), left_out)


def usable_ratios(model: Scored, baseline: Scored) -> dict[str, float]:
    """``model[d] / baseline[d]`` of the data sets in which both are finite and positive."""
    pairs = ((name, ours, baseline.get(name)) for name, ours in model.items())
    return {
        name: ours / theirs
        for name, ours, theirs in pairs
        if ours is not None and theirs is not None and 0 < ours < math.inf and 0 < theirs < math.inf
    }


@dataclass(frozen=True)
class Draws:
    """Logarithms of a score over the baseline's on one data set, one per resample of its series.

    Attributes:
        logs: of the resamples that have a ratio.
        series: how many there are to draw from.
        log: of the series as they are.
    """

    logs: Float[np.ndarray, " draws"]
    series: int
    log: float


def resample(
    model: Sums, baseline: Sums, name: str, *, resamples: int = RESAMPLES
) -> tuple[Draws | None, Draws | None]:
    """Draw the series of one data set with replacement, the same for both models.

    Args:
        model: sums of the model's series.
        baseline: sums of the same series by the baseline.
        name: of the data set; it seeds the draws, so that they depend on nothing else.
        resamples: how many.

    Returns:
        Draws of MASE and of WQL; None where the data set itself has no usable ratio.

    Raises:
        ValueError: the two are not of the same series.
    """
    if model.shape != baseline.shape:
        raise ValueError(f"{name}: sums of {len(model)} series and of {len(baseline)}: give both of the same.")
    both = np.hstack([model, baseline])
    whole = log_ratios(both.sum(axis=0, keepdims=True))[0]
    drawn = log_ratios(_totals(both, np.random.default_rng(zlib.crc32(name.encode())), resamples))
    mase, wql = (
        Draws(logs[np.isfinite(logs)], len(model), float(point)) if np.isfinite(point) else None
        for point, logs in zip(whole, drawn.T, strict=True)
    )
    return mase, wql


def interval(
    data_sets: Sequence[Draws], sources: Sequence[str] | None = None, *, level: float = LEVEL
) -> Interval | None:
    """Interval of the geometric mean of ratios over data sets, by a cluster bootstrap.

    A resample is as many sources as there are, with replacement; each brings all its data sets, and for each of them a
    draw of its series. Where there is one data set, its series alone are drawn. Percentiles of these are stretched as
    the module says.

    Args:
        data_sets: what `resample` gave for each.
        sources: of each data set: those of one source are no independent evidence (default: each its own).
        level: coverage aimed at.

    Returns:
        Its ends; None where there are fewer than `FEWEST` sources, or so many series of a single data set.
    """
    names: Sequence[str | int] = range(len(data_sets)) if sources is None else sources
    clusters: dict[str | int, list[Draws]] = {}
    for name, one in zip(names, data_sets, strict=True):
        if len(one.logs):
            clusters.setdefault(name, []).append(one)
    usable = [one for cluster in clusters.values() for one in cluster]
    units = len(clusters) if len(usable) != 1 else usable[0].series
    if units < FEWEST:
        return None
    rng = np.random.default_rng(0)
    count = max(len(one.logs) for one in usable)
    picked = rng.integers(len(clusters), size=(count, len(clusters)))
    logs = np.zeros(picked.shape)
    for position, cluster in enumerate(clusters.values()):
        here = picked == position
        logs[here] = sum(rng.choice(one.logs, size=int(here.sum())) for one in cluster)
    sizes = np.array([len(cluster) for cluster in clusters.values()])
    score = np.mean([one.log for one in usable])
    means = logs.sum(axis=1) / sizes[picked].sum(axis=1)
    ends = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    low, high = np.exp(score + _stretch(units, level) * (ends - score))
    return float(low), float(high)


def skill(ratios: Iterable[float]) -> float:
    """Skill score: 1 − geometric mean of ratios, each clipped to 0.01…100 as fev does; NaN where there are none.

    >>> round(skill([0.5, 0.5]), 12), round(skill([1e-9, 1.0]), 12)
    (0.5, 0.9)
    """
    return 1 - geometric_mean(min(max(ratio, CLIP[0]), CLIP[1]) for ratio in ratios)


def win_rate(ratios: Iterable[float]) -> float:
    """Share of ratios below 1, ties counted half; NaN where there are none.

    >>> win_rate([0.9, 1.0, 1.2, 0.8])
    0.625
    """
    wins = [1.0 if ratio < 1 else 0.5 * (ratio == 1) for ratio in ratios]
    return statistics.fmean(wins) if wins else math.nan


def _stretch(units: int, level: float) -> float:
    """Ratio of Student's interval of a mean of so many to the percentiles of its bootstrap."""
    from scipy.stats import norm, t

    upper = (1 + level) / 2
    return float((units / (units - 1)) ** 0.5 * t.ppf(upper, units - 1) / norm.ppf(upper))


def log_ratios(totals: Float[np.ndarray, "rows 8"]) -> Float[np.ndarray, "rows 2"]:
    """Log of MASE and of WQL over the baseline's; not finite where one of them is not a positive number."""
    loss, labels, scaled, count, base_loss, base_labels, base_scaled, base_count = totals.T
    with np.errstate(all="ignore"):
        mase = (scaled / count) / (base_scaled / base_count)
        wql = (loss / labels) / (base_loss / base_labels)
        return np.log(np.stack([mase, wql], axis=1))


def _totals(
    values: Float[np.ndarray, "series columns"], rng: np.random.Generator, resamples: int
) -> Float[np.ndarray, "draws columns"]:
    """Column sums of ``resamples`` draws of as many rows as there are."""
    rows = len(values)
    step = max(1, _CELLS // rows)
    return np.concatenate(
        [_counts(rng, min(step, resamples - first), rows) @ values for first in range(0, resamples, step)]
    )


def _counts(rng: np.random.Generator, draws: int, rows: int) -> Int[np.ndarray, "draws rows"]:
    """Count of each row in each draw."""
    cells = rng.integers(rows, size=(draws, rows)) + rows * np.arange(draws)[:, None]
    return np.bincount(cells.ravel(), minlength=draws * rows).reshape(draws, rows)
