"""Random paths: slow wandering, trends and noise of many sorts, each of about unit size over what will be seen."""

from __future__ import annotations

import functools

import numpy as np
from jaxtyping import Float

Series = Float[np.ndarray, "series time"]
Column = Float[np.ndarray, "series 1"]

KNOTS = 12
"""Points that a slow path wanders between."""


def normal(rng: np.random.Generator, n: int, length: int) -> Series:
    """Draw independent normal values."""
    return rng.standard_normal((n, length), dtype=np.float32)


@functools.lru_cache(maxsize=16)
def _between(length: int) -> Float[np.ndarray, "knots time"]:
    """Weights that join `KNOTS` points to a smooth path."""
    at = np.linspace(0, KNOTS - 1, length)
    weight = np.exp(-0.5 * ((at[None, :] - np.arange(KNOTS)[:, None]) / 0.7) ** 2)
    return (weight / weight.sum(axis=0)).astype(np.float32)


def wandering(rng: np.random.Generator, n: int, length: int) -> Series:
    """Draw slow paths, about as large at their ends as a standard normal value."""
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
    """Draw stochastic cycles, autoregressions of order 2 with a period from 4 to 120 that is not kept exactly."""
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
    """Draw noise of unit variance: normal, heavy-tailed, or with some memory."""
    found = normal(rng, n, length)
    kind = rng.random(n)
    heavy = np.flatnonzero(kind < 0.2)
    found[heavy] = rng.standard_t(4, (len(heavy), length)) / np.sqrt(2)
    remembering = np.flatnonzero(kind > 0.6)
    memory = rng.uniform(0.2, 0.95, (len(remembering), 1))
    found[remembering] = autoregressive(found[remembering], memory)
    return found


def trend(rng: np.random.Generator, n: int, length: int, span: Column) -> Series:
    """Draw trends that change by about one over the last ``span`` observations, each of one of ten sorts."""
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
    """Time from 0 at the first observation that is seen to 1 at the last."""
    return ((np.arange(length, dtype=np.float32) - length) / span + 1).astype(np.float32)


def _slope(rng: np.random.Generator, t: Series) -> Column:
    return rng.standard_normal((len(t), 1), dtype=np.float32)


def _flat(rng: np.random.Generator, t: Series, span: Column) -> Series:
    return np.zeros_like(t)


def _line(rng: np.random.Generator, t: Series, span: Column) -> Series:
    return 2 * _slope(rng, t) * t


def _bent(rng: np.random.Generator, t: Series, span: Column) -> Series:
    """Lines with a few changes of slope."""
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
    """Trends that come to rest."""
    rate = np.exp(rng.uniform(0.0, 2.0, (len(t), 1))).astype(np.float32)
    return 2 * _slope(rng, t) * -np.expm1(-rate * np.maximum(t, -1)) / rate


def _saturating(rng: np.random.Generator, t: Series, span: Column) -> Series:
    """Logistic curves."""
    middle = rng.uniform(0.1, 1.2, (len(t), 1)).astype(np.float32)
    return 2 * _slope(rng, t) * np.tanh((t - middle) * rng.uniform(2, 8, (len(t), 1)).astype(np.float32))


def _drift(rng: np.random.Generator, t: Series, span: Column) -> Series:
    return _walk(rng, t, span) / 2 + _line(rng, t, span)
