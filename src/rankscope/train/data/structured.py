"""Structured synthetic series: seasonality, trend and noise as in power, weather, sales or demand data, with artefacts.

The ideas are those of published purely synthetic corpora: trend × season × noise with calendar periods (ForecastPFN,
arXiv 2311.01933), compositions of simple processes (KernelSynth, arXiv 2403.07815), series that are nonlinear functions
of others (CauKer, arXiv 2508.02879), and regimes, shocks and censoring beside them (TempoPFN, arXiv 2510.25502).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from rankscope.errors import OptionError, unknown_choice
from rankscope.train.data.components import (
    Periods,
    autoregressive,
    cycles,
    day_of_week,
    draw_periods,
    noise,
    normal,
    periods_of,
    season,
    trend,
    wandering,
)

Series = Float[np.ndarray, "series time"]
Column = Float[np.ndarray, "series 1"]
HIGHEST = 100.0
"""Maximum level of a series, in standard deviations."""


@dataclass(frozen=True)
class Plan:
    """Lengths and periods of a batch of series.

    Attributes:
        length: observations per series.
        span: visible observations at the end, (series, 1).
        periods: seasonal periods.
    """

    length: int
    span: Column
    periods: Periods

    @property
    def n(self) -> int:
        """Number of series."""
        return len(self.span)

    def rows(self, chosen: Int[np.ndarray, " some"]) -> Plan:
        """Return the plan for a subset of the series."""
        periods = Periods(*(getattr(self.periods, name)[chosen] for name in ("inner", "outer", "third")))
        return Plan(self.length, self.span[chosen], periods)

    def mean(self, series: Series) -> Column:
        """Return the mean over the visible observations."""
        return (series * self._seen).sum(axis=1, keepdims=True) / self.span

    def spread(self, series: Series) -> Column:
        """Return the standard deviation over the visible observations."""
        squares = np.square(series - self.mean(series)) * self._seen
        return np.sqrt(squares.sum(axis=1, keepdims=True) / self.span)

    @property
    def _seen(self) -> Series:
        return (np.arange(self.length) >= self.length - self.span).astype(np.float32)


def plan_series(
    rng: np.random.Generator,
    n: int,
    length: int,
    span: Int[np.ndarray, " series"] | None = None,
    calendar: str | None = None,
    alike: Int[np.ndarray, " series"] | None = None,
) -> Plan:
    """Draw the periods of ``n`` series with ``span`` visible observations at the end (default: all).

    Given ``alike``, each series has the periods that are drawn for that row.
    """
    seen = np.full(n, length) if span is None else np.minimum(span, length)
    periods = draw_periods(rng, seen) if calendar is None else periods_of(calendar, n)
    plan = Plan(length, seen[:, None].astype(np.float32), periods)
    return plan if alike is None else replace(plan, periods=plan.rows(alike).periods)


def _log_uniform(rng: np.random.Generator, n: int, low: float, high: float) -> Column:
    return np.exp(rng.uniform(np.log(low), np.log(high), (n, 1))).astype(np.float32)


def _some(rng: np.random.Generator, n: int, share: float) -> Column:
    """Return 1 for a random fraction of the series, 0 for the others."""
    return (rng.random((n, 1)) < share).astype(np.float32)


def _seasons(rng: np.random.Generator, plan: Plan, *, slips: bool = False, swells: bool = False) -> Series:
    """Draw one to three superposed seasons of about unit variance; the inner one may depend on the day of the week."""
    n, length, periods = plan.n, plan.length, plan.periods
    found = season(rng, periods.inner, length, slips=slips, swells=swells) * day_of_week(rng, periods, length)
    for period, share in ((periods.outer, 0.5), (periods.third, 0.25)):
        rows = np.flatnonzero((rng.random(n) < share) & (period[:, 0] > 0))
        if len(rows):
            found[rows] += _log_uniform(rng, len(rows), 0.1, 1.5) * season(rng, period[rows], length)
    return found


def plain(rng: np.random.Generator, plan: Plan) -> Series:
    """Draw almost pure seasonality, for early training."""
    n, length = plan.n, plan.length
    found = season(rng, plan.periods.inner, length)
    slope = rng.normal(size=(n, 1)) * _some(rng, n, 0.3)
    return found + _log_uniform(rng, n, 0.01, 0.3) * normal(rng, n, length) + slope * np.linspace(-1, 1, length)


def strong(rng: np.random.Generator, plan: Plan) -> Series:
    """Draw regular nested seasons with a weak trend and little noise, as in power or traffic data."""
    n, length = plan.n, plan.length
    found = _seasons(rng, plan, swells=True)
    found += _log_uniform(rng, n, 0.05, 1.0) * trend(rng, n, length, plan.span) * _some(rng, n, 0.7)
    return found + _log_uniform(rng, n, 0.02, 0.5) * noise(rng, n, length)


def weather(rng: np.random.Generator, plan: Plan) -> Series:
    """Draw a season with equally large slow variation and autocorrelated noise, as in temperatures."""
    n, length = plan.n, plan.length
    memory = (1 - _log_uniform(rng, n, 0.002, 0.15)).astype(np.float64)
    fronts = autoregressive(normal(rng, n, length), memory)
    found = _seasons(rng, plan, swells=True) * _log_uniform(rng, n, 0.4, 2.5) + fronts
    return found + _log_uniform(rng, n, 0.02, 0.4) * noise(rng, n, length)


def mixed(rng: np.random.Generator, plan: Plan) -> Series:
    """Draw season, trend and noise in random proportions, with level-dependent noise for some."""
    n, length = plan.n, plan.length
    found = np.exp(rng.normal(0, 0.9, (n, 1))) * _seasons(rng, plan, slips=True, swells=True) * _some(rng, n, 0.85)
    found += np.exp(rng.normal(-0.4, 1.0, (n, 1))) * trend(rng, n, length, plan.span)
    size = _log_uniform(rng, n, 0.01, 0.8) * np.maximum(plan.spread(found), 0.05)
    return found + size * _uneven(rng, found) * noise(rng, n, length)


def multiplicative(rng: np.random.Generator, plan: Plan) -> Series:
    """Draw trend × season × noise, as in sales and passenger data."""
    n, length = plan.n, plan.length
    level = _log_uniform(rng, n, 0.05, 1.2) * trend(rng, n, length, plan.span)
    relative = _log_uniform(rng, n, 0.03, 0.6) * _seasons(rng, plan)
    shaken = _log_uniform(rng, n, 0.005, 0.2) * noise(rng, n, length)
    return np.exp(np.clip(level + relative + shaken, -6, 6))


def drifting(rng: np.random.Generator, plan: Plan) -> Series:
    """Draw seasons with drifting phase and amplitude, and stochastic cycles."""
    n, length = plan.n, plan.length
    found = season(rng, plan.periods.inner, length, slips=True, swells=True)
    free = np.flatnonzero(rng.random(n) < 0.3)
    found[free] = cycles(rng, len(free), length)
    found += _log_uniform(rng, n, 0.05, 1.0) * trend(rng, n, length, plan.span)
    return found + _log_uniform(rng, n, 0.02, 0.5) * noise(rng, n, length)


def trending(rng: np.random.Generator, plan: Plan) -> Series:
    """Draw trends with weak or no seasonality, as in macroeconomic data."""
    n, length = plan.n, plan.length
    found = trend(rng, n, length, plan.span)
    found += 0.2 * _log_uniform(rng, n, 0.1, 2.0) * _some(rng, n, 0.4) * season(rng, plan.periods.inner, length)
    return found + _log_uniform(rng, n, 0.01, 0.4) * noise(rng, n, length)


def walk(rng: np.random.Generator, plan: Plan) -> Series:
    """Draw random walks (plain, geometric or noisy) with volatility clustering, as in prices."""
    n, length = plan.n, plan.length
    wild = np.exp(0.8 * _some(rng, n, 0.4) * wandering(rng, n, length))
    steps = wild * noise(rng, n, length) + _log_uniform(rng, n, 0.001, 0.1) * rng.normal(size=(n, 1))
    path = np.cumsum(steps, axis=1) / np.sqrt(plan.span)
    path = np.where(_some(rng, n, 0.4) > 0, np.exp(np.clip(_log_uniform(rng, n, 0.05, 1.0) * path, -6, 6)), path)
    return path + plan.spread(path) * _log_uniform(rng, n, 0.001, 0.5) * _some(rng, n, 0.3) * noise(rng, n, length)


def counts(rng: np.random.Generator, plan: Plan) -> Series:
    """Draw event counts with a seasonal rate and trend, overdispersed for some."""
    rate = _rate(rng, plan) * _log_uniform(rng, plan.n, 0.5, 300.0)
    scatter = _log_uniform(rng, plan.n, 0.5, 50.0)
    crowded = rng.standard_gamma(scatter, rate.shape) / scatter
    rate = rate * np.where(_some(rng, plan.n, 0.5) > 0, crowded, 1.0)
    return rng.poisson(np.minimum(rate, 1e6)).astype(np.float32)


def intermittent(rng: np.random.Generator, plan: Plan) -> Series:
    """Draw intermittent demand with seasonal occurrence."""
    n, length = plan.n, plan.length
    happens = rng.random((n, length)) < np.minimum(_rate(rng, plan) * _log_uniform(rng, n, 0.03, 0.6), 1.0)
    size = np.ceil(np.exp(_log_uniform(rng, n, 0.1, 1.5) * normal(rng, n, length)) * _log_uniform(rng, n, 1.0, 30.0))
    return np.where(happens, size, 0.0)


def steps(rng: np.random.Generator, plan: Plan) -> Series:
    """Draw piecewise constant levels with bursts, and seasonality for some, as in machine metrics."""
    n, length = plan.n, plan.length
    changes = rng.random((n, length), dtype=np.float32) < _log_uniform(rng, n, 1.0, 12.0) / plan.span
    levels = np.cumsum(changes, axis=1) % 64
    values = rng.normal(size=(n, 64))
    returning = rng.random((n, 1)) < 0.4
    values = np.where(returning, values[:, :1] * (np.arange(64) % 2), values)
    found = np.take_along_axis(values, levels, axis=1)
    found += _some(rng, n, 0.6) * _log_uniform(rng, n, 0.1, 2.0) * season(rng, plan.periods.inner, length)
    bursts = (rng.random((n, length)) < 0.01) * np.abs(rng.standard_t(3, (n, length))) * 2
    found += bursts * _some(rng, n, 0.3)
    return found + _log_uniform(rng, n, 0.01, 0.5) * noise(rng, n, length)


def composed(rng: np.random.Generator, plan: Plan) -> Series:
    """Draw nonlinear functions of two other series, the second possibly lagged."""
    sides = []
    for _ in range(2):
        side = mixed(rng, plan)
        side = (side - plan.mean(side)) / np.maximum(plan.spread(side), 1e-6)
        lag = int(rng.integers(0, 8))
        sides.append(np.roll(side, lag, axis=1) if lag else side)
    functions = (np.tanh, np.sin, np.abs, np.square, lambda x: np.maximum(x, 0), lambda x: 1 / (1 + np.exp(-2 * x)))
    first, second = (functions[int(rng.integers(len(functions)))](np.clip(side, -8, 8)) for side in sides)
    product = _some(rng, plan.n, 0.4)
    return product * first * sides[1] + (1 - product) * (first + rng.normal(size=(plan.n, 1)) * second)


def _rate(rng: np.random.Generator, plan: Plan) -> Series:
    """Draw positive rates around 1 with seasonality and trend."""
    bent = _log_uniform(rng, plan.n, 0.1, 1.0) * _seasons(rng, plan)
    bent += _log_uniform(rng, plan.n, 0.05, 0.8) * trend(rng, plan.n, plan.length, plan.span)
    return np.exp(np.clip(bent, -4, 3))


def _uneven(rng: np.random.Generator, clean: Series) -> Series:
    """Return the noise scale, level-dependent for a quarter of the series."""
    low, span = clean.min(axis=1, keepdims=True), np.maximum(np.ptp(clean, axis=1, keepdims=True), 1e-6)
    return np.where(_some(rng, len(clean), 0.25) > 0, 0.2 + 1.6 * (clean - low) / span, 1.0)


@dataclass(frozen=True)
class Kind:
    """Kind of series.

    Attributes:
        draw: generates the series of a plan.
        weight: sampling weight in the corpus.
        natural: keep values unscaled, since zeros and integers are meaningful.
    """

    draw: Callable[[np.random.Generator, Plan], Series]
    weight: float
    natural: bool = False


KINDS: dict[str, Kind] = {
    "strong": Kind(strong, 26.0),
    "weather": Kind(weather, 10.0),
    "mixed": Kind(mixed, 14.0),
    "multiplicative": Kind(multiplicative, 9.0),
    "drifting": Kind(drifting, 7.0),
    "trending": Kind(trending, 9.0),
    "walk": Kind(walk, 8.0),
    "counts": Kind(counts, 6.0, natural=True),
    "intermittent": Kind(intermittent, 3.0, natural=True),
    "steps": Kind(steps, 5.0),
    "composed": Kind(composed, 3.0),
}
"""Strong seasonality has the largest weight: networks take longest to learn it."""


def structured_series(
    rng: np.random.Generator,
    n: int,
    length: int,
    span: Int[np.ndarray, " series"] | None = None,
    kind: str | None = None,
    calendar: str | None = None,
    alike: Int[np.ndarray, " series"] | None = None,
) -> Series:
    """Draw ``n`` structured series.

    Args:
        rng: source of all randomness.
        n: number of series.
        length: observations in each.
        span: visible observations at the end of each series (default: all); sets the scale of trends, levels and
            amplitudes, so that short histories are as informative as long ones.
        kind: key of `rankscope.train.data.structured.KINDS` (default: drawn per series).
        calendar: key of `rankscope.train.data.components.CALENDARS` (default: drawn per series).
        alike: row whose calendar each series has (default: its own).

    Returns:
        Finite float32 array (series, time), with individual levels and amplitudes.

    Raises:
        OptionError: an unknown kind or calendar.

    >>> structured_series(np.random.default_rng(0), 3, 5, kind="counts").shape
    (3, 5)
    """
    if kind is not None and kind not in KINDS:
        raise OptionError(unknown_choice("kind", kind, KINDS))
    plan = plan_series(rng, n, length, span, calendar, alike)
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
    """Draw ``n`` purely seasonal series with individual levels; the season dominates.

    Args:
        rng: source of all randomness.
        n: number of series.
        length: observations in each.

    Returns:
        float32 array (series, time).
    """
    level = np.exp(rng.uniform(0.0, np.log(30.0), (n, 1)))
    return (plain(rng, plan_series(rng, n, length)) + level).astype(np.float32)


def growth_series(rng: np.random.Generator, n: int, length: int) -> Series:
    """Draw ``n`` positive series that grow or shrink smoothly, as populations and economies do by the year.

    The rate of growth is a slow random walk around 2 % a step, and observations err by at most 3 %.

    Args:
        rng: source of all randomness.
        n: number of series.
        length: observations in each.

    Returns:
        float32 array (series, time).
    """
    turns = rng.choice((0.001, 0.003, 0.01), (n, 1)) * normal(rng, n, length)
    rate = rng.normal(0.02, 0.03, (n, 1)) + np.cumsum(turns, axis=1)
    level = np.exp(np.clip(np.cumsum(rate, axis=1), -12, 12))
    return (level * (1 + rng.choice((0.0, 0.002, 0.01, 0.03), (n, 1)) * normal(rng, n, length))).astype(np.float32)


def _accidents(rng: np.random.Generator, series: Series, plan: Plan) -> Series:
    """Add artefacts to some series: level shifts, outliers, stuck values, clipping and rounding."""
    n, length = series.shape
    spread = np.maximum(plan.spread(series), 1e-6)

    def some(share: float) -> Int[np.ndarray, " some"]:
        return np.flatnonzero(rng.random(n) < share)

    rows = some(0.06)
    jumps = normal(rng, len(rows), length) * (rng.random((len(rows), length)) < 2 / plan.span[rows])
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
    """Standardise, then assign a level and sign, or make the series positive."""
    n = len(series)
    series = np.clip((series - plan.mean(series)) / np.maximum(plan.spread(series), 1e-6), -1e3, 1e3)
    how = rng.random((n, 1))
    high = np.exp(rng.uniform(np.log(0.5), np.log(HIGHEST), (n, 1))) * np.where(rng.random((n, 1)) < 0.93, 1, -1)
    near = rng.normal(0, 0.5, (n, 1))
    placed = series + np.where(how < 0.15, near, high)
    growing = np.exp(np.clip(series * rng.uniform(0.05, 0.8, (n, 1)), -6, 6))
    positive = np.maximum(series + rng.uniform(-0.5, 2.5, (n, 1)), 0.0)
    return np.where(how < 0.8, placed, np.where(how < 0.9, growing, positive))
