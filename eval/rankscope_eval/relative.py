"""Relative scores: the geometric mean over data sets of a model's score over the baseline's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Scored = Mapping[str, float]
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
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs)) if logs else math.nan


def relative_scores(model: Scored, baseline: Scored) -> Relative:
    """Geometric mean over data sets of ``model[d] / baseline[d]`` (Chronos' aggregated relative score).

    A data set counts only where both scores are finite and positive, since the ratio has a logarithm only
    there; the others (missing, NaN, infinite or zero) are named in ``left_out``.

    >>> relative_scores({"a": 1.0, "b": 2.0, "c": 0.0}, {"a": 2.0, "b": 1.0, "c": 1.0})
    Relative(value=1.0, datasets=2, left_out=('c',))
    """
    names = [*model, *(name for name in baseline if name not in model)]
    usable = [name for name in names if _usable(model.get(name)) and _usable(baseline.get(name))]
    left_out = tuple(name for name in names if name not in set(usable))
    return Relative(geometric_mean(model[name] / baseline[name] for name in usable), len(usable), left_out)


def _usable(score: float | None) -> bool:
    return score is not None and math.isfinite(score) and score > 0
