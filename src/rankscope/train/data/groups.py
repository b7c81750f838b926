"""Groups of series that explain each other: shared factors, leaders, cointegration, sums, and driven targets.

The ideas are published: series drawn alone and then tied together, at one time or across times (Chronos-2,
arXiv 2510.15821), linear mixes of common processes (TimePFN, arXiv 2502.16294), and covariates whose past or future is
known. Here the components are the structured series of the corpus, which share the periods of a calendar.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from rankscope.train.data.components import autoregressive, normal
from rankscope.train.data.mixture import Bank, Mixture, augment, corpus_batch, history_lengths
from rankscope.train.data.pool import SeriesPool
from rankscope.train.data.structured import seasonal_series, structured_series

Members = Float[np.ndarray, "members time"]
Parts = Float[np.ndarray, "members longer"]
Known = Bool[np.ndarray, " members"]
Drawn = tuple[Members, Known]

SPARE = 64
"""Values before a group's first, so that its members may lag behind each other."""
OWN_LENGTH = 0.1
"""Fraction of members with a history length of their own."""
FARTHEST = 20.0
"""Largest value of a component, in standard deviations."""
IRRELEVANT = 0.3
"""Fraction of covariates without any effect."""
DUMMY_PERIODS = (5, 7, 12, 24, 30, 48, 96, 168)


def group_layout(rng: np.random.Generator, n: int, unit: int, share: float, largest: int) -> Int[np.ndarray, " series"]:
    """Divide a batch into groups.

    Args:
        rng: source of all randomness.
        n: number of series.
        unit: no group crosses a multiple of this.
        share: expected fraction of series that are in a group of at least two.
        largest: most series of a group.

    Returns:
        Row of the first member of each series' group; its own row for a series alone.
    """
    leaders = np.arange(n)
    for begin in range(0, n, unit):
        row, end = begin, min(begin + unit, n)
        end = row + int(rng.binomial(end - row, share))
        while end - row >= 2:
            size = min(int(rng.integers(2, largest + 1)), end - row)
            leaders[row : row + size] = row
            row += size
    return leaders


def shared_factors(
    rng: np.random.Generator, parts: Parts, factors: int | None = None, own: float | None = None
) -> Drawn:
    """Draw linear mixes of fewer factors, one of which may be common shocks, with something of each member's own.

    Args:
        rng: source of all randomness.
        parts: standardised components; the first ones are the factors.
        factors: number of factors (default: drawn).
        own: weight of what is each member's own (default: drawn).
    """
    now = parts[:, SPARE:]
    members = len(parts)
    count = int(rng.integers(1, max(members, 2))) if factors is None else factors
    mixed = now[:count].copy()
    if rng.random() < 0.25:
        mixed[-1] = shocks(rng, now.shape[1])
    loadings = rng.normal(size=(members, count)) * np.where(rng.random((members, count)) < 0.8, 1.0, 0.0)
    loadings[np.arange(members), rng.integers(0, count, members)] += rng.choice([-1.0, 1.0], members)
    weight = np.exp(rng.uniform(np.log(0.02), np.log(1.0))) if own is None else own
    return _scaled(loadings @ mixed) + weight * rng.permutation(now), np.zeros(members, dtype=bool)


def leading(rng: np.random.Generator, parts: Parts, own: float | None = None) -> Drawn:
    """Draw followers that repeat the first member some steps later."""
    members, length = len(parts), parts.shape[1] - SPARE
    lags = np.exp(rng.uniform(0.0, np.log(SPARE), members)).astype(int)
    lags[0] = 0
    series = np.stack([parts[0, SPARE - lag :][:length] for lag in lags]) * rng.choice([-1.0, 1.0], (members, 1))
    weight = np.exp(rng.uniform(np.log(0.02), np.log(0.7))) if own is None else own
    series[1:] += weight * parts[1:, SPARE:]
    return series, np.zeros(members, dtype=bool)


def cointegrated(rng: np.random.Generator, parts: Parts) -> Drawn:
    """Draw series that share a random walk and stay near it."""
    members, length = len(parts), parts.shape[1] - SPARE
    path = np.cumsum(normal(rng, 1, length), axis=1) / np.sqrt(length)
    memory = 1 - np.exp(rng.uniform(np.log(0.05), np.log(0.5), (members, 1)))
    apart = autoregressive(normal(rng, members, length), memory) * np.exp(rng.uniform(np.log(0.02), np.log(0.3)))
    series = rng.choice([-1.0, 1.0], (members, 1), p=[0.2, 0.8]) * np.exp(rng.normal(0, 0.5, (members, 1))) * path
    return series + apart, np.zeros(members, dtype=bool)


def sums(rng: np.random.Generator, parts: Parts) -> Drawn:
    """Draw series of different sizes, and first the sum of the others."""
    series = parts[:, SPARE:] * np.exp(rng.normal(0, 0.7, (len(parts), 1)))
    series[0] = series[1:].sum(axis=0)
    return series, np.zeros(len(parts), dtype=bool)


def unrelated(rng: np.random.Generator, parts: Parts) -> Drawn:
    """Draw series that have nothing to do with each other; some are known."""
    known = rng.random(len(parts)) < rng.choice([0.0, 0.5])
    known[0] = False
    return parts[:, SPARE:].copy(), known


def driven(
    rng: np.random.Generator,
    parts: Parts,
    effects: Sequence[str] | None = None,
    own: float | None = None,
) -> Drawn:
    """Draw one or more targets and covariates that drive them, or do not; most covariates are known in the future.

    Args:
        rng: source of all randomness.
        parts: standardised components.
        effects: keys of `EFFECTS` (default: all).
        own: weight of what is the targets' own (default: drawn).
    """
    members, length = len(parts), parts.shape[1] - SPARE
    targets = 1 if members == 2 or rng.random() < 0.6 else int(rng.integers(1, members))
    series = parts.copy()
    for row in range(targets, members):
        series[row] = DRIVERS[int(rng.integers(len(DRIVERS)))](rng, parts[row])
    covariates = _scaled(series[targets:])
    names = list(EFFECTS) if effects is None else list(effects)
    for row in range(targets):
        felt = np.zeros(length + SPARE)
        for one in range(len(covariates)):
            if effects is not None or rng.random() >= IRRELEVANT:
                effect = EFFECTS[names[int(rng.integers(len(names)))]]
                other = covariates[int(rng.integers(len(covariates)))]
                felt += rng.normal() * _scaled(effect(rng, covariates[one], other)[None])[0]
        weight = np.exp(rng.uniform(np.log(0.05), np.log(3.0))) if own is None else own
        series[row] = weight * parts[row] + felt
        if effects is None and rng.random() < 0.25:
            series[row] = np.exp(np.clip(0.5 * series[row] / max(float(series[row].std()), 1e-6), -6, 6))
    known = np.arange(members) >= targets
    if effects is None and rng.random() < 0.2:
        known &= rng.random(members) < 0.5
    return series[:, SPARE:], known


def plainly_driven(rng: np.random.Generator, parts: Parts) -> Drawn:
    """Draw targets that known covariates drive linearly, with little of their own."""
    return driven(rng, parts, effects=["linear"], own=rng.uniform(0.02, 0.2))


def shocks(rng: np.random.Generator, length: int) -> Float[np.ndarray, " time"]:
    """Draw rare jumps or spikes, of about unit variance."""
    found = normal(rng, 1, length)[0] * (rng.random(length) < rng.uniform(3, 20) / length)
    found = np.cumsum(found) if rng.random() < 0.5 else found
    return _scaled(found[None])[0]


def _weather(rng: np.random.Generator, part: Float[np.ndarray, " time"]) -> Float[np.ndarray, " time"]:
    return part


def _dummy(rng: np.random.Generator, part: Float[np.ndarray, " time"]) -> Float[np.ndarray, " time"]:
    """Draw a calendar's zeros and ones: the same part of every period."""
    period = int(rng.choice(DUMMY_PERIODS))
    on = int(rng.integers(1, max(2, period // 2)))
    return ((np.arange(len(part)) + int(rng.integers(period))) % period < on).astype(float)


def _promotion(rng: np.random.Generator, part: Float[np.ndarray, " time"]) -> Float[np.ndarray, " time"]:
    """Draw zeros and ones that are on for a while at irregular times."""
    lasts = float(np.exp(rng.uniform(0.0, np.log(24))))
    rest = lasts * float(np.exp(rng.uniform(np.log(1.5), np.log(12))))
    spells = rng.geometric(1 / np.array([lasts, rest] * len(part))[: len(part)])
    on = np.repeat(np.arange(len(part)) % 2 == int(rng.integers(2)), spells)
    return on[: len(part)].astype(float)


def _price(rng: np.random.Generator, part: Float[np.ndarray, " time"]) -> Float[np.ndarray, " time"]:
    """Draw levels that are held for a while, some of them again and again."""
    changes = rng.random(len(part)) < np.exp(rng.uniform(np.log(0.01), np.log(0.15)))
    levels = rng.lognormal(0, 0.4, int(rng.integers(2, 12)))
    return levels[rng.integers(0, len(levels), len(part))][np.cumsum(changes) % len(part)]


DRIVERS = (_weather, _weather, _dummy, _promotion, _price)
"""Generators of covariates from a component."""


def _carried(rng: np.random.Generator, driver: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Let an effect fade over the steps after its cause."""
    from scipy.signal import lfilter

    return np.asarray(lfilter([1.0], [1.0, -rng.uniform(0.3, 0.95)], driver))


def _later(rng: np.random.Generator, driver: np.ndarray, other: np.ndarray) -> np.ndarray:
    lag = int(np.exp(rng.uniform(0.0, np.log(SPARE))))
    return np.concatenate([np.full(lag, driver[0]), driver[:-lag]])


EFFECTS: dict[str, Callable[[np.random.Generator, np.ndarray, np.ndarray], np.ndarray]] = {
    "linear": lambda rng, driver, other: driver,
    "lagged": _later,
    "carried over": _carried,
    "saturating": lambda rng, driver, other: np.tanh(rng.uniform(0.5, 3.0) * driver),
    "beyond a threshold": lambda rng, driver, other: np.maximum(driver - rng.uniform(-1.0, 1.0), 0.0),
    "interacting": lambda rng, driver, other: driver * other,
}
"""Effect → its size over time from (rng, covariate, another covariate)."""


@dataclass(frozen=True)
class GroupKind:
    """Kind of group: the function that draws it, and its weight in the corpus."""

    draw: Callable[[np.random.Generator, Parts], Drawn]
    weight: float


GROUP_KINDS: dict[str, GroupKind] = {
    "driven": GroupKind(driven, 40.0),
    "shared factors": GroupKind(shared_factors, 26.0),
    "leading": GroupKind(leading, 10.0),
    "unrelated": GroupKind(unrelated, 10.0),
    "cointegrated": GroupKind(cointegrated, 7.0),
    "sums": GroupKind(sums, 7.0),
}


def grouped_series(
    rng: np.random.Generator, parts: Parts, leaders: Int[np.ndarray, " members"], plain: float = 0.0
) -> tuple[Members, Known]:
    """Tie components together to groups, in place of each other.

    Args:
        rng: source of all randomness.
        parts: standardised components (series, `SPARE` + time).
        leaders: row of the first member of each group, for each of its members, which follow each other.
        plain: fraction of groups that are plainly driven; the others are of all kinds.

    Returns:
        The series (series, time), and which of them are covariates with a known future.
    """
    series, known = parts[:, SPARE:].copy(), np.zeros(len(parts), dtype=bool)
    weight = np.array([kind.weight for kind in GROUP_KINDS.values()])
    kinds = list(GROUP_KINDS.values())
    for first, size in zip(*np.unique(leaders, return_counts=True), strict=True):
        kind = kinds[int(rng.choice(len(kinds), p=weight / weight.sum()))]
        draw = plainly_driven if plain and rng.random() < plain else kind.draw
        rows = first + rng.permutation(int(size))  # no place in a group means anything
        series[rows], known[rows] = draw(rng, parts[first : first + size])
    return series, known


def group_batch(
    rng: np.random.Generator,
    n: int,
    unit: int,
    context: int,
    horizon: int,
    mixture: Mixture,
    bank: Bank | None,
    pool: SeriesPool | None = None,
    step: int = 0,
) -> tuple[np.ndarray, np.ndarray, Int[np.ndarray, " series"], Bool[np.ndarray, " series"]]:
    """Draw ``n`` training examples, some of them in groups.

    Args:
        rng: source of all randomness.
        n: number of series.
        unit: no group crosses a multiple of this.
        context: maximum context length.
        horizon: forecast horizon.
        mixture: composition of the corpus; without a ``group_share`` all series are those of `corpus_batch`.
        bank: KernelSynth series, or None for none.
        pool: series of ``mixture.files``, or None for none.
        step: optimiser step, for the curriculum.

    Returns:
        Histories (series, context) and futures (series, horizon) as of `corpus_batch`, the row of each group's first
        member, and which series are covariates with a known future.
    """
    leaders = np.arange(n)
    if mixture.group_share:
        leaders = group_layout(rng, n, unit, mixture.group_share, mixture.largest_group)
    company = np.bincount(leaders, minlength=n)[leaders] > 1
    history, future = np.empty((n, context), np.float32), np.empty((n, horizon), np.float32)
    alone, grouped = np.flatnonzero(~company), np.flatnonzero(company)
    known = np.zeros(n, dtype=bool)
    if len(alone):
        sizes = (len(alone), context, horizon)
        history[alone], future[alone] = corpus_batch(rng, *sizes, mixture, bank, pool, step)
    if len(grouped):
        first = np.searchsorted(grouped, leaders[grouped])
        own, kept = rng.random(len(grouped)) < OWN_LENGTH, history_lengths(rng, len(grouped), context, mixture)
        kept = np.where(own, kept, kept[first])
        parts = _components(rng, first, kept[first] + horizon, context + horizon + SPARE, mixture, step)
        series, known[grouped] = grouped_series(rng, parts, first, mixture.plain_groups)
        series = series.astype(np.float32)
        made = augment(rng, series[:, :context], series[:, context:], kept, mixture)
        history[grouped], future[grouped] = made
    return history, future, leaders, known


def _components(
    rng: np.random.Generator,
    first: Int[np.ndarray, " series"],
    span: Int[np.ndarray, " series"],
    length: int,
    mixture: Mixture,
    step: int,
) -> Parts:
    """Draw structured series, with the periods of their group's ``first``, standardised over what is visible."""
    n = len(first)
    parts = structured_series(rng, n, length, span, alike=first).astype(np.float64)
    plain = np.flatnonzero(rng.random(n) < mixture.seasonal_share_at(step))
    parts[plain] = seasonal_series(rng, len(plain), length)
    seen = np.arange(length) >= (length - span)[:, None]
    centred = parts - parts.mean(axis=1, keepdims=True, where=seen)
    deviation = centred.std(axis=1, keepdims=True, where=seen)
    return np.clip(centred / np.maximum(deviation, 1e-6), -FARTHEST, FARTHEST)


def _scaled(series: Members) -> Members:
    """Standardise series; constant ones are 0."""
    centred = series - series.mean(axis=1, keepdims=True)
    return centred / np.maximum(centred.std(axis=1, keepdims=True), 1e-6)
