"""Structured series: a trend, up to two seasonalities, noise, a level, and the accidents of real data.

The parts are drawn to cover what public forecasting data show: calendar periods at every sampling rate, two seasonal
periods at once (hours in days in weeks), levels far above the amplitude, random walks beside stationary series,
multiplicative growth, heavy tails, level shifts, spikes, intermittent zeros and counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

Series = Float[np.ndarray, "series time"]
Column = Float[np.ndarray, "series 1"]


@dataclass(frozen=True)
class _Seen:
    """The part of each series that will be looked at: its length (series, 1) and its mask (series, time)."""

    span: np.ndarray
    mask: np.ndarray

    @classmethod
    def last(cls, span: np.ndarray, length: int) -> _Seen:
        mask = np.arange(length)[None, :] >= length - span[:, None]
        return cls(span[:, None].astype(float), mask.astype(float))

    def mean(self, series: Series) -> Column:
        return (series * self.mask).sum(axis=1, keepdims=True) / self.mask.sum(axis=1, keepdims=True)

    def spread(self, series: Series) -> Column:
        deviation = (series - self.mean(series)) * self.mask
        return np.sqrt((deviation**2).sum(axis=1, keepdims=True) / self.mask.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class Calendar:
    """A sampling rate: its main period, the longer one around it, and how often series have it.

    Attributes:
        period: observations in the main season.
        outer: observations in the season around it, 0 for none.
        weight: relative frequency among generated series.
    """

    period: float
    outer: float
    weight: float


CALENDARS: dict[str, Calendar] = {
    "hourly": Calendar(24.0, 168.0, 24.0),
    "half-hourly": Calendar(48.0, 336.0, 4.0),
    "quarter-hourly": Calendar(96.0, 672.0, 3.0),
    "minutely": Calendar(60.0, 1440.0, 2.0),
    "daily": Calendar(7.0, 365.25, 18.0),
    "business": Calendar(5.0, 261.0, 6.0),
    "weekly": Calendar(52.18, 0.0, 5.0),
    "monthly": Calendar(12.0, 0.0, 18.0),
    "quarterly": Calendar(4.0, 0.0, 10.0),
    "yearly": Calendar(0.0, 0.0, 6.0),
}
FREE_PERIOD_SHARE = 0.1
HARMONICS = 10


def structured_series(
    rng: np.random.Generator, n: int, length: int, span: Int[np.ndarray, " series"] | None = None
) -> Series:
    """Draw ``n`` structured series.

    Args:
        rng: source of all randomness.
        n: number of series.
        length: observations in each.
        span: how many of the last observations will be looked at, per series (default: all). Trends bend, and
            levels and amplitudes are set, on that scale, so that a short history has as much to say as a long one.

    Returns:
        float64 array (series, time), finite, each series with a level and an amplitude of its own.
    """
    seen = _Seen.last(np.full(n, length) if span is None else span, length)
    period, outer, hourly_like = _draw_periods(rng, n)
    season = _season(rng, period, length) * _day_factor(rng, period, hourly_like, length)
    season += _season(rng, outer, length) * rng.uniform(0.1, 1.0, (n, 1)) * (rng.random((n, 1)) < 0.6)
    season *= _slow_modulation(rng, n, length)
    trend = _trend(rng, n, length, seen)
    noise = _noise(rng, n, length)
    season_weight = np.exp(rng.normal(0.0, 0.9, (n, 1))) * (rng.random((n, 1)) < 0.85)
    trend_weight = np.exp(rng.normal(-0.4, 1.0, (n, 1)))
    clean = season_weight * season + trend_weight * trend
    noise_weight = np.exp(rng.uniform(np.log(0.01), np.log(0.8), (n, 1)))
    spread = np.maximum(seen.spread(clean), 0.05)
    series = clean + noise_weight * spread * noise * _heteroscedastic(rng, clean)
    return _observe(rng, _accidents(rng, series, seen), seen)


def _draw_periods(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    calendars = list(CALENDARS.values())
    weight = np.array([c.weight for c in calendars], dtype=float)
    pick = rng.choice(len(calendars), size=n, p=weight / weight.sum())
    period = np.array([c.period for c in calendars])[pick]
    outer = np.array([c.outer for c in calendars])[pick]
    free = rng.random(n) < FREE_PERIOD_SHARE
    period[free] = np.exp(rng.uniform(np.log(3), np.log(250), int(free.sum())))
    outer[free] = 0
    return period, outer, (outer / np.maximum(period, 1) == 7) & ~free


def _season(rng: np.random.Generator, period: np.ndarray, length: int) -> Series:
    """Periodic part with unit variance: smooth (Fourier, random decay) or one free value per phase."""
    n = len(period)
    safe = np.maximum(period, 2.0)[:, None]
    phase = np.arange(length)[None, :] / safe + rng.random((n, 1))
    order = np.arange(1, HARMONICS + 1)
    decay = rng.uniform(0.2, 2.5, (n, 1))
    amplitude = rng.normal(size=(n, HARMONICS)) * order[None, :] ** -decay
    amplitude[order[None, :] > safe / 2] = 0.0
    offset = rng.random((n, HARMONICS))
    smooth = np.zeros((n, length))
    for k in order:
        smooth += amplitude[:, k - 1 : k] * np.cos(2 * np.pi * (k * phase + offset[:, k - 1 : k]))
    slots = rng.normal(size=(n, 200)) * np.where(rng.random((n, 200)) < rng.uniform(0.1, 1, (n, 1)), 1.0, 0.15)
    index = np.floor((phase % 1.0) * np.minimum(safe, 200)).astype(int)
    stepped = np.take_along_axis(slots, index, axis=1)
    use_steps = (rng.random((n, 1)) < 0.35) & (safe <= 200)
    season = np.where(use_steps, stepped, smooth)
    season -= season.mean(axis=1, keepdims=True)
    season /= np.maximum(season.std(axis=1, keepdims=True), 1e-6)
    return season * (period[:, None] > 0)


def _day_factor(
    rng: np.random.Generator, period: np.ndarray, hourly_like: Bool[np.ndarray, " series"], length: int
) -> Series:
    """Strength of the daily pattern by day of the week: working days alike, the weekend weaker or stronger."""
    n = len(period)
    factor = 1 + rng.normal(0, 0.1, (n, 7))
    factor[:, 5:] *= rng.uniform(0.1, 1.3, (n, 1))
    day = (np.arange(length)[None, :] / np.maximum(period, 1)[:, None] + 7 * rng.random((n, 1))).astype(int) % 7
    weekly = np.take_along_axis(factor, day, axis=1)
    return np.where((hourly_like & (rng.random(n) < 0.6))[:, None], weekly, 1.0)


def _slow_modulation(rng: np.random.Generator, n: int, length: int) -> Series:
    walk = np.cumsum(rng.normal(size=(n, length)), axis=1) / np.sqrt(length)
    strength = rng.uniform(0.1, 0.8, (n, 1)) * (rng.random((n, 1)) < 0.3)
    return np.exp(strength * walk)


def _trend(rng: np.random.Generator, n: int, length: int, seen: _Seen) -> Series:
    """Trend part of roughly unit size over the seen part, one of eight kinds drawn for each."""
    t = (np.arange(length)[None, :] - length) / seen.span + 1
    kinds = ("flat", "linear", "bent", "walk", "smooth", "reverting", "growth", "drift")
    pick = rng.choice(len(kinds), size=n, p=[0.2, 0.13, 0.12, 0.2, 0.07, 0.13, 0.07, 0.08])
    shocks = rng.normal(size=(n, length))
    slope = rng.normal(size=(n, 1))
    trend = np.zeros((n, length))
    linear = slope * t * 2
    walk = np.cumsum(shocks, axis=1) / np.sqrt(seen.span) * 2
    bends = np.cumsum(shocks * (rng.random((n, length)) < 4 / seen.span), axis=1)
    damping = rng.uniform(0.0, 0.3, (n, 1)) * rng.integers(0, 2, (n, 1))
    made = {
        "linear": linear,
        "bent": np.cumsum(bends + slope, axis=1) / seen.span * 2,
        "walk": walk,
        "smooth": np.cumsum(np.cumsum(shocks, axis=1), axis=1) / seen.span**1.5 * 3,
        "reverting": _autoregressive(rng, shocks),
        "growth": np.expm1(np.clip(np.clip(slope * 2.5, -4, 4) * t, -12, 4)),
        "drift": walk + linear * (1 - damping),
    }
    for index, kind in enumerate(kinds):
        if kind != "flat":
            trend[pick == index] = made[kind][pick == index]
    return trend


def _autoregressive(rng: np.random.Generator, shocks: Series) -> Series:
    """AR(1) with a coefficient for each series, unit stationary variance."""
    phi = 1 - np.exp(rng.uniform(np.log(0.01), np.log(0.6), len(shocks)))
    scale = np.sqrt(1 - phi**2)
    out = np.empty_like(shocks)
    state = shocks[:, 0]
    for step in range(shocks.shape[1]):
        state = phi * state + scale * shocks[:, step]
        out[:, step] = state
    return out


def _noise(rng: np.random.Generator, n: int, length: int) -> Series:
    gaussian = rng.normal(size=(n, length))
    heavy = rng.standard_t(4, size=(n, length)) / np.sqrt(2)
    return np.where(rng.random((n, 1)) < 0.25, heavy, gaussian)


def _heteroscedastic(rng: np.random.Generator, clean: Series) -> Series:
    low = clean.min(axis=1, keepdims=True)
    span = np.maximum(np.ptp(clean, axis=1, keepdims=True), 1e-6)
    growing = 0.2 + 1.6 * (clean - low) / span
    return np.where(rng.random((len(clean), 1)) < 0.25, growing, 1.0)


def _accidents(rng: np.random.Generator, series: Series, seen: _Seen) -> Series:
    n, length = series.shape
    spread = np.maximum(seen.spread(series), 1e-3)
    shift = np.cumsum(rng.normal(0, 1.5, (n, length)) * (rng.random((n, length)) < 2 / seen.span), axis=1)
    series = series + spread * shift * (rng.random((n, 1)) < 0.12)
    spikes = rng.standard_t(3, (n, length)) * 3 * (rng.random((n, length)) < 0.01)
    return series + spread * spikes * (rng.random((n, 1)) < 0.12)


def _observe(rng: np.random.Generator, series: Series, seen: _Seen) -> Series:
    """Standardise, then give each series a level, a sign, a scale of growth, or the shape of counts."""
    n = len(series)
    series = np.clip((series - seen.mean(series)) / np.maximum(seen.spread(series), 1e-6), -1e4, 1e4)
    kind = rng.random((n, 1))
    log_level = rng.uniform(np.log(0.5), np.log(60.0), (n, 1))
    level = np.exp(log_level) * np.where(rng.random((n, 1)) < 0.93, 1, -1)
    level = np.where(kind < 0.12, rng.normal(0, 0.3, (n, 1)), level)
    shifted = series + level
    exponential = np.exp(np.clip(series * rng.uniform(0.05, 0.9, (n, 1)), -6, 6))
    positive = np.maximum(series + rng.uniform(-0.5, 2.0, (n, 1)), 0.0)
    counts = np.round(positive * np.exp(rng.uniform(0, 4, (n, 1))))
    gaps = np.where(rng.random(series.shape) < 0.06, 0.0, positive)
    out = np.where(kind < 0.62, shifted, exponential)
    out = np.where(kind > 0.82, positive, out)
    out = np.where(kind > 0.89, counts, out)
    return np.where(kind > 0.95, gaps, out)


CLEAN_NOISE = (0.02, 0.3)
LONGEST_CLEAN_PERIOD = 128


def seasonal_series(rng: np.random.Generator, n: int, length: int) -> Series:
    """Draw ``n`` plain seasonal series: one or two seasonalities, little noise, at most a straight trend, a level.

    They are what a young network learns seasons from: nothing in them is larger than the season.

    Args:
        rng: source of all randomness.
        n: number of series.
        length: observations in each.

    Returns:
        float64 array (series, time).
    """
    period, outer, _ = _draw_periods(rng, n)
    wrong = (period < 2) | (period > LONGEST_CLEAN_PERIOD)
    period[wrong] = rng.choice([4.0, 7.0, 12.0, 24.0], int(wrong.sum()))
    series = _season(rng, period, length) + 0.3 * _season(rng, outer, length) * (rng.random((n, 1)) < 0.4)
    least, most = CLEAN_NOISE
    noise = np.exp(rng.uniform(np.log(least), np.log(most), (n, 1)))
    slope = rng.normal(size=(n, 1)) * (rng.random((n, 1)) < 0.3)
    level = np.exp(rng.uniform(np.log(1.0), np.log(30.0), (n, 1)))
    return series + noise * rng.normal(size=(n, length)) + slope * np.linspace(-1, 1, length)[None, :] + level
