"""Structured series: every kind of `rankscope.train.data.kinds`, with levels, signs and the accidents of real data."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from rankscope.errors import OptionError, unknown_choice
from rankscope.train.data import paths
from rankscope.train.data.kinds import KINDS, Plan, plain, plan_series

Series = Float[np.ndarray, "series time"]

HIGHEST = 100.0
"""Highest level of a series above zero, in its standard deviations."""


def structured_series(
    rng: np.random.Generator,
    n: int,
    length: int,
    span: Int[np.ndarray, " series"] | None = None,
    kind: str | None = None,
    calendar: str | None = None,
) -> Series:
    """Draw ``n`` structured series.

    Args:
        rng: source of all randomness.
        n: number of series.
        length: observations in each.
        span: how many of the last observations will be looked at, per series (default: all). Trends bend, and
            levels and amplitudes are set, on that scale, so that a short history has as much to say as a long one.
        kind: a key of `rankscope.train.data.kinds.KINDS`; every series' own is drawn by default.
        calendar: a key of `rankscope.train.data.seasons.CALENDARS`, likewise.

    Returns:
        float32 array (series, time), finite, each series with a level and an amplitude of its own.

    Raises:
        OptionError: an unknown kind or calendar.

    >>> structured_series(np.random.default_rng(0), 3, 5, kind="counts").shape
    (3, 5)
    """
    if kind is not None and kind not in KINDS:
        raise OptionError(unknown_choice("kind", kind, KINDS))
    plan = plan_series(rng, n, length, span, calendar)
    weight = np.array([one.weight for one in KINDS.values()])
    drawn = rng.choice(len(KINDS), size=n, p=weight / weight.sum())
    series = np.empty((n, length), dtype=np.float32)
    for index, (name, one) in enumerate(KINDS.items()):
        rows = np.arange(n) if name == kind else np.flatnonzero(drawn == index)
        if kind not in (None, name) or not len(rows):
            continue
        part = plan.rows(rows)
        made = np.clip(one.draw(rng, part), -1e9, 1e9).astype(np.float32)
        series[rows] = made if one.natural else _placed(rng, _accidents(rng, made, part), part)
    return series


def seasonal_series(rng: np.random.Generator, n: int, length: int) -> Series:
    """Draw ``n`` plain seasonal series, each on a level of its own: nothing in them is larger than the season.

    Args:
        rng: source of all randomness.
        n: number of series.
        length: observations in each.

    Returns:
        float32 array (series, time).
    """
    level = np.exp(rng.uniform(0.0, np.log(30.0), (n, 1)))
    return (plain(rng, plan_series(rng, n, length)) + level).astype(np.float32)


def _accidents(rng: np.random.Generator, series: Series, plan: Plan) -> Series:
    """Shift levels, add outliers, hold values, clip and round, each for a few of the series."""
    n, length = series.shape
    spread = np.maximum(plan.spread(series), 1e-6)

    def some(share: float) -> Int[np.ndarray, " some"]:
        return np.flatnonzero(rng.random(n) < share)

    rows = some(0.06)
    jumps = paths.normal(rng, len(rows), length) * (rng.random((len(rows), length)) < 2 / plan.span[rows])
    series[rows] += 1.5 * spread[rows] * np.cumsum(jumps, axis=1)
    rows = some(0.06)
    share = np.exp(rng.uniform(np.log(0.001), np.log(0.02), (len(rows), 1)))
    hits = rng.random((len(rows), length)) < share
    series[rows] += 3 * spread[rows] * rng.standard_t(3, hits.shape).clip(-8, 8) * hits
    rows = some(0.05)
    bound = np.quantile(series[rows], 0.85, axis=1, keepdims=True) if len(rows) else series[rows][:, :1]
    series[rows] = np.minimum(series[rows], bound)
    rows = some(0.08)
    grain = spread[rows] * rng.uniform(0.05, 0.6, (len(rows), 1))
    series[rows] = np.round(series[rows] / grain) * grain
    for row in some(0.03):
        begin, held = int(rng.integers(length)), int(rng.integers(2, max(3, length // 10)))
        series[row, begin : begin + held] = series[row, begin]
    return series


def _placed(rng: np.random.Generator, series: Series, plan: Plan) -> Series:
    """Standardise, then give each series a level and a sign, or make it positive."""
    n = len(series)
    series = np.clip((series - plan.mean(series)) / np.maximum(plan.spread(series), 1e-6), -1e3, 1e3)
    how = rng.random((n, 1))
    high = np.exp(rng.uniform(np.log(0.5), np.log(HIGHEST), (n, 1))) * np.where(rng.random((n, 1)) < 0.93, 1, -1)
    near = rng.normal(0, 0.5, (n, 1))
    placed = series + np.where(how < 0.15, near, high)
    growing = np.exp(np.clip(series * rng.uniform(0.05, 0.8, (n, 1)), -6, 6))
    positive = np.maximum(series + rng.uniform(-0.5, 2.5, (n, 1)), 0.0)
    return np.where(how < 0.8, placed, np.where(how < 0.9, growing, positive))
