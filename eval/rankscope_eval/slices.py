"""Models over the baseline on parts of the data: by horizon, frequency, season, length and intermittency."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float

from rankscope.series import Series
from rankscope.series.frequency import seasonality
from rankscope_eval.relative import FEWEST, LEVEL, Interval, geometric_mean, interval, log_ratios
from rankscope_eval.report import EvalRow, Slice, drawn
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
"""Property that a part shares, and its value."""
Members = dict[str, Bool[np.ndarray, " _"]]
"""Series of a part, by data set."""
Sides = dict[str, Float[np.ndarray, "_ 8"]]
"""Sums of a model and of the baseline on a part, by data set."""


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
    found = {(row.model, row.key): row for row in rows}
    keys = dict.fromkeys(row.key for row in rows)
    parts = _parts({key: _properties(suite.series(tasks[key]), tasks[key]) for key in keys})
    slices: list[Slice] = []
    for model in dict.fromkeys(models):
        if model != baseline:
            sides = {key: _sides(found[model, key], found[baseline, key]) for key in keys}
            slices += _of_model(model, parts, sides, {key: found[model, key].source or key for key in keys})
    return tuple(slices)


def _properties(series: Sequence[Series], task: Task) -> dict[Part, Bool[np.ndarray, " series"]]:
    """Parts that series of a task belong to."""
    freqs = np.array([one.start.freqstr for one in series])
    seasons = np.array([task.season_length or seasonality(freq) for freq in freqs.tolist()])
    histories = [one.target[: len(one) + task.offset] for one in series]
    sizes = np.array([len(one) for one in histories])
    known = np.array([np.isfinite(one).sum() for one in histories])
    moved = np.array([(np.isfinite(one) & (one != 0)).sum() for one in histories])
    with np.errstate(divide="ignore", invalid="ignore"):
        sparse = known / moved >= INTERMITTENT
    short, long = LENGTHS
    return {
        **{("frequency", freq): freqs == freq for freq in np.unique(freqs).tolist()},
        **{("season", str(season)): seasons == season for season in np.unique(seasons).tolist()},
        ("length", f"below {short}"): sizes < short,
        ("length", f"{short} to {long - 1}"): (sizes >= short) & (sizes < long),
        ("length", f"{long} and more"): sizes >= long,
        ("intermittency", "intermittent"): sparse,
        ("intermittency", "not intermittent"): ~sparse,
    }


def _parts(properties: Mapping[str, Mapping[Part, Bool[np.ndarray, " _"]]]) -> dict[Part, Members]:
    """Parts of all data sets: not one that is all of the data, or the same series as another, such as a season."""
    parts: dict[Part, Members] = {}
    for key, found in properties.items():
        for part, here in found.items():
            if here.any():
                parts.setdefault(part, {})[key] = here
    values = Counter(by for by, _ in parts)
    seen: dict[tuple[tuple[str, bytes], ...], Part] = {}
    for part, members in parts.items():
        if values[part[0]] > 1:
            seen.setdefault(tuple((key, here.tobytes()) for key, here in members.items()), part)
    return {part: parts[part] for part in seen.values()}


def _sides(ours: EvalRow, theirs: EvalRow) -> Float[np.ndarray, "series bands 8"]:
    """Sums of a model and of the baseline."""
    assert ours.bands is not None
    assert theirs.bands is not None
    return np.concatenate([ours.bands, theirs.bands], axis=2)


def _of_model(
    model: str,
    parts: Mapping[Part, Members],
    sides: Mapping[str, Float[np.ndarray, "_ _ 8"]],
    sources: Mapping[str, str],
) -> list[Slice]:
    """Slices of a model, the worst first; the first few with intervals."""
    found: dict[Part, Sides] = {
        part: {key: sides[key][here].sum(axis=1) for key, here in members.items()} for part, members in parts.items()
    }
    for band, name in enumerate(QUARTERS):
        whole = {key: both[:, band] for key, both in sides.items() if both.shape[1] == len(QUARTERS)}
        if whole:
            found["horizon", name] = whole
    slices = [(_slice(model, part, here), here) for part, here in found.items()]
    slices = [(one, here) for one, here in slices if math.isfinite(one.WQL) and one.series >= FEWEST]
    slices.sort(key=lambda pair: -pair[0].WQL)
    level = 1 - (1 - LEVEL) / max(1, len(slices))
    worst = [_with_intervals(one, here, sources, level) for one, here in slices[:WORST]]
    return worst + [one for one, _ in slices[WORST:]]


def _slice(model: str, part: Part, here: Sides) -> Slice:
    mase, wql = (
        np.exp(logs[np.isfinite(logs)]).tolist()
        for logs in log_ratios(np.stack([sums.sum(axis=0) for sums in here.values()])).T
    )
    series = sum(map(len, here.values()))
    return Slice(model, *part, len(wql), series, geometric_mean(wql), geometric_mean(mase))


def _with_intervals(one: Slice, here: Sides, sources: Mapping[str, str], level: float) -> Slice:
    draws = {key: drawn(sums[:, :4], sums[:, 4:], key) for key, sums in here.items()}

    def ends(position: int) -> Interval | None:
        known = {key: draw for key, pair in draws.items() if (draw := pair[position]) is not None}
        return interval(list(known.values()), [sources[key] for key in known], level=level) if known else None

    return replace(one, MASE_interval=ends(0), WQL_interval=ends(1))
