"""Components of synthetic series: smooth random paths, trends, noise, and seasonality with drifting shape."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from rankscope.errors import OptionError, unknown_choice

Series = Float[np.ndarray, "series time"]
Column = Float[np.ndarray, "series 1"]

KNOTS = 12
"""Knots of a smooth random path."""
PHASES = 1024
"""Grid points per seasonal shape."""
WAVES = 12
"""Maximum harmonics of a smooth seasonal shape."""
FREE_SHARE = 0.25
"""Fraction of series with a period unrelated to any calendar."""
FREE_PERIODS = (3.0, 320.0)
FITTING_SHARE = 0.75
"""Fraction of the series shorter than two seasons that get a calendar with shorter ones."""


def normal(rng: np.random.Generator, n: int, length: int) -> Series:
    """Draw independent normal values."""
    return rng.standard_normal((n, length), dtype=np.float32)


@functools.lru_cache(maxsize=16)
def _between(length: int) -> Float[np.ndarray, "knots time"]:
    """Return interpolation weights from `KNOTS` points to a smooth path."""
    at = np.linspace(0, KNOTS - 1, length)
    weight = np.exp(-0.5 * ((at[None, :] - np.arange(KNOTS)[:, None]) / 0.7) ** 2)
    return (weight / weight.sum(axis=0)).astype(np.float32)


def wandering(rng: np.random.Generator, n: int, length: int) -> Series:
    """Draw smooth random paths of about unit scale."""
    steps = rng.standard_normal((n, KNOTS), dtype=np.float32) / np.float32(KNOTS**0.5)
    path: Series = (2 * np.cumsum(steps, axis=1)) @ _between(length)
    return path - path.mean(axis=1, keepdims=True)


def autoregressive(shocks: Series, memory: Column) -> Series:
    """Filter shocks so that x_t = φ x_{t-1} + √(1 - φ²) ε_t; ``memory`` is φ, below 1."""
    from scipy.signal import lfilter

    found = np.empty_like(shocks)
    for row, (values, phi) in enumerate(zip(shocks, memory[:, 0].tolist(), strict=True)):
        found[row] = lfilter([(1 - phi * phi) ** 0.5], [1.0, -phi], values, zi=[phi * values[0]])[0]
    return found


def cycles(rng: np.random.Generator, n: int, length: int) -> Series:
    """Draw stochastic cycles: AR(2) processes with pseudo-periods from 4 to 120."""
    from scipy.signal import lfilter

    period = np.exp(rng.uniform(np.log(4), np.log(120), n))
    radius = 1 - np.exp(rng.uniform(np.log(0.002), np.log(0.1), n))
    shocks = normal(rng, n, length + 100)
    found = np.empty_like(shocks)
    for row in range(n):
        poles = [1.0, -2 * radius[row] * np.cos(2 * np.pi / period[row]), radius[row] ** 2]
        found[row] = lfilter([1.0], poles, shocks[row])
    found = found[:, 100:]
    return found / np.maximum(found.std(axis=1, keepdims=True), 1e-6)


def noise(rng: np.random.Generator, n: int, length: int) -> Series:
    """Draw unit-variance noise: normal, heavy-tailed or autocorrelated."""
    found = normal(rng, n, length)
    kind = rng.random(n)
    heavy = np.flatnonzero(kind < 0.2)
    found[heavy] = rng.standard_t(4, (len(heavy), length)) / np.sqrt(2)
    remembering = np.flatnonzero(kind > 0.6)
    memory = rng.uniform(0.2, 0.95, (len(remembering), 1))
    found[remembering] = autoregressive(found[remembering], memory)
    return found


def trend(rng: np.random.Generator, n: int, length: int, span: Column) -> Series:
    """Draw trends of ten kinds that change by about one over the last ``span`` observations."""
    sorts = (_flat, _line, _bent, _walk, _smooth, _reverting, _growth, _damped, _saturating, _drift)
    odds = [0.16, 0.13, 0.1, 0.16, 0.08, 0.12, 0.06, 0.08, 0.05, 0.06]
    pick = rng.choice(len(sorts), size=n, p=odds)
    found = np.empty((n, length), dtype=np.float32)
    for index, sort in enumerate(sorts):
        rows = np.flatnonzero(pick == index)
        if len(rows):
            found[rows] = sort(rng, _time(length, span[rows]), span[rows])
    return found


def _time(length: int, span: Column) -> Series:
    """Return time scaled to 0 at the first visible observation and 1 at the last."""
    return ((np.arange(length, dtype=np.float32) - length) / span + 1).astype(np.float32)


def _slope(rng: np.random.Generator, t: Series) -> Column:
    return rng.standard_normal((len(t), 1), dtype=np.float32)


def _flat(rng: np.random.Generator, t: Series, span: Column) -> Series:
    return np.zeros_like(t)


def _line(rng: np.random.Generator, t: Series, span: Column) -> Series:
    return 2 * _slope(rng, t) * t


def _bent(rng: np.random.Generator, t: Series, span: Column) -> Series:
    """Draw piecewise linear trends."""
    bends = normal(rng, *t.shape) * (rng.random(t.shape, dtype=np.float32) < 4 / span)
    return np.cumsum(np.cumsum(bends, axis=1) + _slope(rng, t), axis=1) / span * 2


def _walk(rng: np.random.Generator, t: Series, span: Column) -> Series:
    return np.cumsum(normal(rng, *t.shape), axis=1) / np.sqrt(span) * 2


def _smooth(rng: np.random.Generator, t: Series, span: Column) -> Series:
    return np.cumsum(np.cumsum(normal(rng, *t.shape), axis=1), axis=1) / span**1.5 * 3


def _reverting(rng: np.random.Generator, t: Series, span: Column) -> Series:
    memory = 1 - np.exp(rng.uniform(np.log(0.002), np.log(0.5), (len(t), 1)))
    return autoregressive(normal(rng, *t.shape), memory)


def _growth(rng: np.random.Generator, t: Series, span: Column) -> Series:
    return np.expm1(np.clip(np.clip(2.5 * _slope(rng, t), -4, 4) * t, -12, 4))


def _damped(rng: np.random.Generator, t: Series, span: Column) -> Series:
    """Draw damped trends."""
    rate = np.exp(rng.uniform(0.0, 2.0, (len(t), 1))).astype(np.float32)
    return 2 * _slope(rng, t) * -np.expm1(-rate * np.maximum(t, -1)) / rate


def _saturating(rng: np.random.Generator, t: Series, span: Column) -> Series:
    """Draw logistic curves."""
    middle = rng.uniform(0.1, 1.2, (len(t), 1)).astype(np.float32)
    return 2 * _slope(rng, t) * np.tanh((t - middle) * rng.uniform(2, 8, (len(t), 1)).astype(np.float32))


def _drift(rng: np.random.Generator, t: Series, span: Column) -> Series:
    return _walk(rng, t, span) / 2 + _line(rng, t, span)


Table = Float[np.ndarray, "series phases"]


@dataclass(frozen=True)
class Calendar:
    """Seasonal periods that occur together at a sampling rate.

    Attributes:
        periods: season lengths, shortest first; 0 for none.
        weight: sampling weight.
    """

    periods: tuple[float, float, float]
    weight: float


CALENDARS: dict[str, Calendar] = {
    "secondly": Calendar((60.0, 3600.0, 0.0), 1.0),
    "minutely": Calendar((60.0, 1440.0, 0.0), 3.0),
    "five-minutely": Calendar((288.0, 2016.0, 0.0), 6.0),
    "ten-minutely": Calendar((144.0, 1008.0, 0.0), 4.0),
    "quarter-hourly": Calendar((96.0, 672.0, 0.0), 7.0),
    "half-hourly": Calendar((48.0, 336.0, 0.0), 10.0),
    "hourly": Calendar((24.0, 168.0, 8766.0), 20.0),
    "four-hourly": Calendar((6.0, 42.0, 0.0), 2.0),
    "daily": Calendar((7.0, 365.25, 30.44), 14.0),
    "business": Calendar((5.0, 261.0, 21.0), 4.0),
    "weekly": Calendar((52.18, 13.04, 4.35), 6.0),
    "monthly": Calendar((12.0, 0.0, 0.0), 15.0),
    "quarterly": Calendar((4.0, 0.0, 0.0), 7.0),
}


@dataclass(frozen=True)
class Periods:
    """Periods per series, (series, 1) each, 0 for none; ``outer`` and ``third`` complement ``inner``."""

    inner: Column
    outer: Column
    third: Column


def draw_periods(rng: np.random.Generator, span: Int[np.ndarray, " series"]) -> Periods:
    """Draw a calendar, or a free period, for every series.

    Args:
        rng: source of all randomness.
        span: visible observations per series; seasons should mostly fit twice.
    """
    n = len(span)
    table = np.array([calendar.periods for calendar in CALENDARS.values()])
    weight = np.array([calendar.weight for calendar in CALENDARS.values()])
    pick = rng.choice(len(table), size=n, p=weight / weight.sum())
    for row in np.flatnonzero((2 * table[pick, 0] > span) & (rng.random(n) < FITTING_SHARE)):
        fitting = weight * (2 * table[:, 0] <= max(span[row], 8))
        pick[row] = rng.choice(len(table), p=fitting / fitting.sum())
    periods = table[pick]
    free = np.flatnonzero(rng.random(n) < FREE_SHARE)
    least, most = FREE_PERIODS
    longest = np.clip(span[free] / 2, 2 * least, most)
    periods[free, 0] = np.exp(rng.uniform(np.log(least), np.log(longest)))
    whole = rng.random(len(free)) < 0.6
    periods[free, 0] = np.where(whole, np.round(periods[free, 0]), periods[free, 0])
    periods[free, 1] = periods[free, 0] * rng.choice([0.0, 7.0, 12.0, 4.0], len(free), p=[0.6, 0.2, 0.1, 0.1])
    periods[free, 2] = 0.0
    return Periods(periods[:, :1], periods[:, 1:2], periods[:, 2:])


def periods_of(calendar: str, n: int) -> Periods:
    """Return the periods of a calendar, for ``n`` series.

    Raises:
        OptionError: an unknown calendar.
    """
    if calendar not in CALENDARS:
        raise OptionError(unknown_choice("calendar", calendar, CALENDARS))
    columns = np.tile(np.array(CALENDARS[calendar].periods), (n, 1))
    return Periods(columns[:, :1], columns[:, 1:2], columns[:, 2:])


def season(
    rng: np.random.Generator, period: Column, length: int, *, slips: bool = False, swells: bool = False
) -> Series:
    """Draw a periodic shape of unit variance per series; zero for period 0.

    Args:
        rng: source of all randomness.
        period: season lengths.
        length: number of observations.
        slips: let the phase drift for some series.
        swells: let the amplitude drift for some series.
    """
    shape = _shapes(rng, period)
    phase = np.arange(length, dtype=np.float32) / np.maximum(period, 1.0).astype(np.float32)
    phase += rng.random(period.shape, dtype=np.float32)
    if slips:
        phase += rng.uniform(0.02, 0.25, period.shape).astype(np.float32) * wandering(rng, len(period), length)
    found = np.take_along_axis(shape, (phase * PHASES).astype(np.int32) % PHASES, axis=1)
    if swells:
        found *= np.exp(rng.uniform(0.1, 0.7, period.shape).astype(np.float32) * wandering(rng, len(period), length))
    return found * (period >= 2)


def day_of_week(rng: np.random.Generator, periods: Periods, length: int) -> Series:
    """Return a day-of-week factor of the inner season: equal for working days, different at weekends."""
    n = len(periods.inner)
    factor = 1 + rng.normal(0, 0.08, (n, 7))
    factor[:, 5:] *= rng.uniform(0.1, 1.4, (n, 1))
    day = np.arange(length) / np.maximum(periods.inner, 1.0) + 7 * rng.random((n, 1))
    weekly = np.take_along_axis(factor, day.astype(np.int32) % 7, axis=1).astype(np.float32)
    has_weeks = (periods.outer == 7 * periods.inner) & (rng.random((n, 1)) < 0.6)
    return np.where(has_weeks, weekly, np.float32(1.0))


def _shapes(rng: np.random.Generator, period: Column) -> Table:
    """Draw seasonal shapes of six kinds with mean 0 and variance 1."""
    n = len(period)
    sorts = (_waves, _slots, _bumps, _halves, _pulses, _saws)
    pick = rng.choice(len(sorts), size=n, p=[0.34, 0.2, 0.24, 0.1, 0.06, 0.06])
    table = np.empty((n, PHASES), dtype=np.float32)
    for index, sort in enumerate(sorts):
        rows = np.flatnonzero(pick == index)
        if len(rows):
            table[rows] = sort(rng, np.maximum(period[rows], 2.0))
    table -= table.mean(axis=1, keepdims=True)
    table /= np.maximum(table.std(axis=1, keepdims=True), 1e-6)
    return table


_GRID = (np.arange(PHASES, dtype=np.float32) + 0.5) / PHASES
_ORDER = np.arange(1, WAVES + 1)
_COSINES = np.cos(2 * np.pi * np.outer(_ORDER, _GRID)).astype(np.float32)
_SINES = np.sin(2 * np.pi * np.outer(_ORDER, _GRID)).astype(np.float32)


def _waves(rng: np.random.Generator, period: Column) -> Table:
    """Draw harmonics with geometrically decaying amplitudes."""
    amplitude = rng.normal(size=(2, len(period), WAVES)) * _ORDER ** -rng.uniform(0.3, 3.0, (len(period), 1))
    amplitude *= (period >= 2 * _ORDER) | (_ORDER == 1)
    return (amplitude[0] @ _COSINES + amplitude[1] @ _SINES).astype(np.float32)


def _slots(rng: np.random.Generator, period: Column) -> Table:
    """Draw independent values per phase, mostly small."""
    n = len(period)
    slots = np.clip(np.round(period), 2, 200)
    values = rng.normal(size=(n, 200)) * np.where(rng.random((n, 200)) < rng.uniform(0.1, 1.0, (n, 1)), 1.0, 0.15)
    return np.take_along_axis(values, (_GRID * slots).astype(np.int32), axis=1).astype(np.float32)


def _bumps(rng: np.random.Generator, period: Column) -> Table:
    """Draw one to three smooth peaks, like morning and evening peaks."""
    shape = np.zeros((len(period), PHASES), dtype=np.float32)
    for _ in range(3):
        centre = rng.random((len(period), 1), dtype=np.float32)
        sharpness = np.exp(rng.uniform(0.0, 4.0, (len(period), 1))).astype(np.float32)
        height = rng.normal(0.7, 0.6, (len(period), 1)).astype(np.float32)
        shape += height * np.exp(sharpness * (np.cos(2 * np.pi * (_GRID - centre)) - 1))
    return shape


def _halves(rng: np.random.Generator, period: Column) -> Table:
    """Draw activity confined to part of the season, like daylight."""
    up = np.cos(2 * np.pi * (_GRID - rng.random((len(period), 1)))) - rng.uniform(-0.6, 0.6, (len(period), 1))
    return (np.maximum(up, 0.0) ** rng.uniform(0.4, 2.0, (len(period), 1))).astype(np.float32)


def _pulses(rng: np.random.Generator, period: Column) -> Table:
    """Draw on/off pulses with soft or hard edges."""
    width = rng.uniform(0.08, 0.7, (len(period), 1))
    distance = np.abs((_GRID - rng.random((len(period), 1)) + 0.5) % 1.0 - 0.5)
    return np.clip((width / 2 - distance) * np.exp(rng.uniform(1.5, 5.0, (len(period), 1))) + 0.5, 0, 1).astype(
        np.float32
    )


def _saws(rng: np.random.Generator, period: Column) -> Table:
    """Draw asymmetric sawtooth shapes."""
    top = rng.uniform(0.02, 0.98, (len(period), 1))
    at = (_GRID + rng.random((len(period), 1))) % 1.0
    return np.where(at < top, at / top, (1 - at) / (1 - top)).astype(np.float32)
