"""Ratios over sources of data: tasks that share a source are no independent evidence."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rankscope.measure.tradeoff import Verdict
from rankscope_eval.relative import FEWEST, RESAMPLES, Draws, Interval, Scored, geometric_mean, interval, usable_ratios
from rankscope_eval.verdict import judge


@dataclass(frozen=True)
class Judged:
    """A score over the baseline's.

    Attributes:
        ratio: geometric mean over sources, within them over their tasks.
        interval: of 95 %, by a bootstrap that draws sources, then their tasks; None for fewer than three sources.
        verdict: on the ratio, within the margin.
        tasks: tasks in the mean.
        bases: sources.
        left_out: tasks without a usable ratio: a score that is zero or not finite.
    """

    ratio: float
    interval: Interval | None
    verdict: Verdict
    tasks: int
    bases: int
    left_out: tuple[str, ...] = ()


def judge_by_base(model: Scored, baseline: Scored, base_of: Callable[[str], str], margin: float) -> Judged:
    """Judge a model's scores over the baseline's, by the sources of the tasks.

    Args:
        model: its scores by task.
        baseline: those of the baseline.
        base_of: source of a task.
        margin: relative difference that counts as none.
    """
    ratios = usable_ratios(model, baseline)
    grouped: dict[str, list[float]] = {}
    for task, ratio in ratios.items():
        grouped.setdefault(base_of(task), []).append(ratio)
    means = {base: geometric_mean(values) for base, values in grouped.items()}
    draws = {base: draw(base, values) for base, values in grouped.items()} if len(grouped) >= FEWEST else {}
    left_out = tuple(task for task in model if task not in ratios)
    ends = interval(list(draws.values())) if draws else None
    return Judged(
        geometric_mean(means.values()), ends, judge(draws, means, margin), len(ratios), len(grouped), left_out
    )


def draw(base: str, ratios: Sequence[float]) -> Draws:
    """Mean log ratio of the tasks of a source, drawn with replacement."""
    logs = np.log(ratios)
    picks = np.random.default_rng(zlib.crc32(base.encode())).integers(0, len(logs), (RESAMPLES, len(logs)))
    return Draws(logs[picks].mean(axis=1), len(logs), float(logs.mean()))
