"""Models over the baseline on parts of the data: by horizon, frequency, season, length and intermittency."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float

from rankscope.series import Series
from rankscope_eval.relative import FEWEST, LEVEL, Interval, geometric_mean, interval, resample
from rankscope_eval.report import EvalRow, Slice
from rankscope_eval.sources import LoadedSuite
from rankscope_eval.suites import Task

WORST = 3
"""Slices of a model that get an interval and are named."""
LENGTHS = (100, 1000)
"""Series are short below the first number of values before the first window, long from the second on."""
INTERMITTENT = 1.32
"""Mean interval between values other than zero from which demand is intermittent (Syntetos and Boylan, 2005)."""
QUARTERS = ("first quarter", "second quarter", "third quarter", "last quarter")

Part = tuple[str, str]
"""What a part is one of, and its name."""
Pairs = dict[str, Float[np.ndarray, "series 8"]]
"""Sums of the model and of the baseline on a part, by data set."""


def worst_slices(
    rows: Sequence[EvalRow], suite: LoadedSuite, models: Sequence[str], baseline: str
) -> tuple[Slice, ...]:
    """Compare models with the baseline on every part of the data that is not all of it, the worst part first.

    Args:
        rows: of the models and the baseline.
        suite: with its series.
        models: names of models.
        baseline: that of the baseline.
    """
    tasks = {f"{task.benchmark}/{task.name}": task for task in suite.suite.tasks}
    found = {(row.model, row.key): row for row in rows if row.bands is not None}
    keys = [key for key in dict.fromkeys(row.key for row in rows) if key in tasks]
    kinds = {key: list(_kinds(suite.series(tasks[key]), tasks[key], found[baseline, key])) for key in keys}
    slices: list[Slice] = []
    for model in dict.fromkeys(models):
        if model != baseline:
            slices += _of_model(model, found, baseline, kinds)
    return tuple(slices)


def _kinds(series: Sequence[Series], task: Task, row: EvalRow) -> Iterator[tuple[Part, Bool[np.ndarray, " series"]]]:
    """Parts that series of a task belong to."""
    every = np.ones(len(series), dtype=bool)
    yield ("frequency", series[0].start.freqstr), every
    yield ("season", str(row.season_length)), every
    histories = [one.target[: len(one) + task.offset] for one in series]
    sizes = np.array([len(one) for one in histories])
    short, long = LENGTHS
    yield ("length", f"below {short}"), sizes < short
    yield ("length", f"{short} to {long - 1}"), (sizes >= short) & (sizes < long)
    yield ("length", f"{long} and more"), sizes >= long
    known = np.array([np.isfinite(one).sum() for one in histories])
    moved = np.array([(np.isfinite(one) & (one != 0)).sum() for one in histories])
    with np.errstate(divide="ignore", invalid="ignore"):
        sparse = known / moved >= INTERMITTENT
    yield ("intermittency", "intermittent"), sparse
    yield ("intermittency", "not intermittent"), ~sparse


def _of_model(
    model: str,
    found: dict[tuple[str, str], EvalRow],
    baseline: str,
    kinds: dict[str, list[tuple[Part, Bool[np.ndarray, " series"]]]],
) -> list[Slice]:
    """Slices of a model, the worst first; the first few with intervals."""
    parts: dict[Part, Pairs] = {}
    for key, members in kinds.items():
        ours, theirs = found[model, key].bands, found[baseline, key].bands
        assert ours is not None
        assert theirs is not None
        both = np.concatenate([ours, theirs], axis=2)  # [series, bands, 8]
        for part, here in members:
            if here.any():
                parts.setdefault(part, {})[key] = both[here].sum(axis=1)
        if both.shape[1] == len(QUARTERS):
            for band, name in enumerate(QUARTERS):
                parts.setdefault(("horizon", name), {})[key] = both[:, band]
    whole = {by for by, _ in parts if sum(other == by for other, _ in parts) == 1}
    found_parts = [(_slice(model, part, pairs), pairs) for part, pairs in parts.items() if part[0] not in whole]
    slices = [(one, pairs) for one, pairs in found_parts if math.isfinite(one.WQL) and one.series >= FEWEST]
    # The same series by two names, such as a frequency and its season, are one part.
    apart = {(one.datasets, one.series, one.WQL, one.MASE): (one, pairs) for one, pairs in reversed(slices)}
    slices = list(apart.values())
    slices.sort(key=lambda pair: -pair[0].WQL)
    level = 1 - (1 - LEVEL) / max(1, len(slices))
    return [_with_intervals(one, pairs, level) if place < WORST else one for place, (one, pairs) in enumerate(slices)]


def _slice(model: str, part: Part, pairs: Pairs) -> Slice:
    mase, wql = zip(*(_ratios(sums) for sums in pairs.values()), strict=True)
    over_wql, over_mase = (geometric_mean(one for one in ratios if 0 < one < math.inf) for ratios in (wql, mase))
    return Slice(model, *part, len(pairs), sum(map(len, pairs.values())), over_wql, over_mase)


def _ratios(sums: Float[np.ndarray, "series 8"]) -> tuple[float, float]:
    """MASE and WQL over the baseline's."""
    with np.errstate(all="ignore"):
        loss, labels, scaled, count, base_loss, base_labels, base_scaled, base_count = sums.sum(axis=0)
        return float((scaled / count) / (base_scaled / base_count)), float((loss / labels) / (base_loss / base_labels))


def _with_intervals(one: Slice, pairs: Pairs, level: float) -> Slice:
    draws = [resample(sums[:, :4], sums[:, 4:], name) for name, sums in pairs.items()]

    def ends(position: int) -> Interval | None:
        usable = [pair[position] for pair in draws]
        known = [draw for draw in usable if draw is not None]
        return interval(known, level=level) if known else None

    return replace(one, MASE_interval=ends(0), WQL_interval=ends(1))
