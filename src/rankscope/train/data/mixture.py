"""Training corpus: structured series, KernelSynth and TSMixup, with truncated histories and missing values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from rankscope.errors import OptionError
from rankscope.series import Columns
from rankscope.train.data.pool import SeriesPool
from rankscope.train.data.structured import growth_series, seasonal_series, structured_series

Series = Float[np.ndarray, "series time"]
Bank = Float[np.ndarray, "draws longer"]
Source = Callable[[np.random.Generator, int, int], Series]
"""Function of (rng, n, length) that generates series."""


CORPUS_VERSION = 4
"""Version of everything that draws series here, higher by one with every change that draws others from the same seed.

It is part of the settings of runs that generate series, so that none goes on with another corpus than it began with; a
run that names none is of version 1, from before the kinds of `rankscope.train.data.structured`.
"""
SHARES = (
    "kernel_share", "mixup_share", "short_share", "missing_share", "file_share", "seasonal_share", "short_batches",
    "group_share", "plain_groups", "growth_share",
)  # fmt: skip
"""Fields of `Mixture` that are fractions."""
LONGEST_GROWTH = 64
"""Most visible observations of a series of smooth growth: they come by the year or the quarter."""
SHORTEST_CONTEXT = 64
"""Minimum context length of short batches."""
MOST_MIXED = 3
"""K of the paper: the largest number of series in a mixture."""
CONCENTRATION = 1.5
"""α of the paper: the symmetric Dirichlet concentration of the weights."""


@dataclass(frozen=True)
class Mixture:
    """Composition and augmentation of the training corpus.

    Attributes:
        kernel_share: fraction of series from the KernelSynth bank.
        mixup_share: fraction of convex mixtures of 2 or 3 series (TSMixup).
        short_share: fraction of series with a randomly truncated history.
        shortest: minimum length of a truncated history.
        missing_share: fraction of series with missing values, single or in runs.
        concentration: Dirichlet concentration of the mixing weights (Chronos paper: 1.5).
        files: the user's series files (Parquet, CSV, JSONL or Arrow); default none.
        file_share: fraction of series that are windows of those files; the others may be mixed with them.
        columns: non-default column names (``id``, ``time``, ``target``) of the files.
        freq: frequency of the files (default: inferred).
        seasonal_share: fraction of purely seasonal series after the curriculum, replacing any others.
        curriculum: optimiser steps over which the fraction of purely seasonal series decreases from 1 to
            ``seasonal_share``; seasonality is learnt fastest when it dominates.
        short_batches: fraction of batches with a context of 1/2, 1/4, … of the maximum, down to `SHORTEST_CONTEXT`,
            which are cheaper. Decreases from 1 during the curriculum.
        group_share: fraction of series in groups that explain each other (`rankscope.train.data.groups`): targets
            with covariates, shared factors, leaders. For families that attend across series (Chronos-2).
        largest_group: most series of a group.
        plain_groups: fraction of groups that are plainly driven, linearly and hardly by anything but their covariates,
            in the place of any others: without them group attention is not learnt in a short training.
        growth_share: fraction of short series of smooth growth (`rankscope.train.data.structured.growth_series`),
            replacing any others.
    """

    kernel_share: float = 0.15
    mixup_share: float = 0.15
    short_share: float = 0.35
    shortest: int = 8
    missing_share: float = 0.05
    concentration: float = 1.5
    files: tuple[str, ...] = ()
    file_share: float = 0.0
    seasonal_share: float = 0.0
    curriculum: int = 0
    short_batches: float = 0.0
    group_share: float = 0.0
    largest_group: int = 8
    plain_groups: float = 0.0
    growth_share: float = 0.0
    columns: Columns | None = None
    freq: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.files, str):
            raise OptionError(f"mixture.files must be a list of files: write [{self.files}].")
        for name in SHARES:
            if not 0 <= getattr(self, name) <= 1:
                raise OptionError(f"mixture.{name} is {getattr(self, name)}: it is a share, from 0 to 1.")
        if self.shortest < 1:
            raise OptionError(f"mixture.shortest is {self.shortest}: it must be at least 1.")
        if self.largest_group < 2:
            raise OptionError(f"mixture.largest_group is {self.largest_group}: a group has at least 2 series.")
        if self.curriculum < 0:
            raise OptionError(f"mixture.curriculum is {self.curriculum}: it is a number of steps.")
        if self.concentration <= 0:
            raise OptionError(f"mixture.concentration is {self.concentration}: it must be above 0.")
        if bool(self.files) != (self.file_share > 0):
            raise OptionError(
                f"mixture.files is {list(self.files)} and mixture.file_share {self.file_share}: give both, the share "
                "above 0, or neither."
            )

    def seasonal_share_at(self, step: int) -> float:
        """Return the fraction of purely seasonal series at an optimiser step.

        >>> Mixture(seasonal_share=0.5, curriculum=100).seasonal_share_at(50)
        0.75
        """
        return _falling(self.seasonal_share, step, self.curriculum)

    def draw_context(self, rng: np.random.Generator, context: int, step: int, multiple: int = 1) -> int:
        """Draw the context length of a batch: ``context``, or shorter for some batches.

        Args:
            rng: source of all randomness.
            context: maximum context length.
            step: optimiser step, for the curriculum.
            multiple: shorter contexts are a multiple of this.

        >>> sorted({Mixture(short_batches=1.0).draw_context(np.random.default_rng(n), 512, 0, 16) for n in range(50)})
        [64, 128, 256]
        """
        halvings = max(0, (context // SHORTEST_CONTEXT).bit_length() - 1)
        if not halvings or not self.short_batches:
            return context
        if rng.random() >= _falling(self.short_batches, step, self.curriculum):
            return context
        shorter = context >> int(rng.integers(1, halvings + 1))
        return -(-shorter // multiple) * multiple


def _falling(share: float, step: int, steps: int) -> float:
    """Return the fraction at a step, decreasing from 1 to ``share`` over a curriculum of ``steps``."""
    left = max(0.0, 1 - step / steps) if steps else 0.0
    return share + (1 - share) * left


def corpus_batch(
    rng: np.random.Generator,
    n: int,
    context: int,
    horizon: int,
    mixture: Mixture,
    bank: Bank | None,
    pool: SeriesPool | None = None,
    step: int = 0,
) -> tuple[Float[np.ndarray, "series context"], Float[np.ndarray, "series horizon"]]:
    """Draw ``n`` training examples.

    Args:
        rng: random generator.
        n: number of examples.
        context: maximum context length.
        horizon: forecast horizon.
        mixture: composition of the corpus.
        bank: KernelSynth series at least ``context + horizon`` long, or None for none.
        pool: series of ``mixture.files``, or None for none.
        step: optimiser step, for the curriculum.

    Returns:
        Histories (series, context) in float32 with NaN for missing values, and futures (series, horizon), with NaN only
        from the user's series.
    """
    kept = history_lengths(rng, n, context, mixture)
    kernels = None if bank is None else functools.partial(_windows_of, bank)
    series = clean_series(rng, n, context + horizon, kept + horizon, mixture, kernels, pool)
    plain = np.flatnonzero(rng.random(n) < mixture.seasonal_share_at(step))
    series[plain] = seasonal_series(rng, len(plain), context + horizon)
    if mixture.growth_share:
        grown, longest = np.flatnonzero(rng.random(n) < mixture.growth_share), min(LONGEST_GROWTH, context)
        series[grown, -longest - horizon :] = growth_series(rng, len(grown), longest + horizon)
        kept[grown] = _log_uniform(rng, len(grown), min(mixture.shortest, longest), longest)
    return augment(rng, series[:, :context].astype(np.float32), series[:, context:].astype(np.float32), kept, mixture)


def clean_series(
    rng: np.random.Generator,
    n: int,
    length: int,
    seen: Int[np.ndarray, " series"],
    mixture: Mixture,
    kernels: Source | None,
    pool: SeriesPool | None,
) -> Series:
    """Draw ``n`` series of the corpus before augmentation: structured, KernelSynth, user series and mixtures.

    Args:
        rng: source of all randomness.
        n: number of series.
        length: observations in each.
        seen: visible observations at the end of each series; see `structured_series`.
        mixture: composition of the corpus.
        kernels: generates standardised KernelSynth series, or None.
        pool: the user's series, or None for none.

    Returns:
        Series (series, time) in float64; NaN only in and from the user's.
    """
    series = structured_series(rng, n, length, seen)
    if kernels is not None and mixture.kernel_share > 0:
        series = _with_kernels(rng, series, mixture.kernel_share, kernels)
    if pool is not None and mixture.file_share > 0:
        chosen = np.flatnonzero(rng.random(n) < mixture.file_share)
        series[chosen] = pool.windows(rng, len(chosen), length)
    return mix_within(rng, series, mixture.mixup_share, mixture.concentration)


def history_lengths(rng: np.random.Generator, n: int, context: int, mixture: Mixture) -> Int[np.ndarray, " series"]:
    """Draw history lengths: log-uniform for truncated ones, else ``context``."""
    kept = _log_uniform(rng, n, min(mixture.shortest, context), context)
    return np.where(rng.random(n) < mixture.short_share, kept, context)


def _log_uniform(rng: np.random.Generator, n: int, low: int, high: int) -> Int[np.ndarray, " series"]:
    return np.exp(rng.uniform(np.log(low), np.log(high), n)).astype(int)


def augment(
    rng: np.random.Generator,
    history: Float[np.ndarray, "series context"],
    future: Float[np.ndarray, "series horizon"],
    kept: Int[np.ndarray, " series"],
    mixture: Mixture,
) -> tuple[Float[np.ndarray, "series context"], Float[np.ndarray, "series horizon"]]:
    """Truncate histories and insert missing values; futures of empty histories are masked."""
    n, context = history.shape
    absent = np.arange(context)[None, :] < (context - kept)[:, None]
    absent |= _gaps(rng, n, context, mixture.missing_share)
    absent[:, -1] = False
    history = np.where(absent, np.float32(np.nan), history)
    unseen = np.isnan(history).all(axis=1, keepdims=True)
    return history, np.where(unseen, np.float32(np.nan), future)


def _gaps(rng: np.random.Generator, n: int, context: int, share: float) -> Bool[np.ndarray, "series context"]:
    """Draw a mask of missing values: single values for half of the affected series, runs for the others."""
    absent = np.zeros((n, context), dtype=bool)
    for row in np.flatnonzero(rng.random(n) < share):
        if rng.random() < 0.5:
            absent[row] = rng.random(context) < rng.uniform(0.01, 0.2)
            continue
        for _ in range(int(rng.integers(1, 3))):
            begin, long = int(rng.integers(context)), int(context * rng.uniform(0.01, 0.15)) + 1
            absent[row, begin : begin + long] = True
    return absent


def _windows_of(bank: Bank, rng: np.random.Generator, n: int, length: int) -> Series:
    rows = rng.integers(0, len(bank), n)
    starts = rng.integers(0, bank.shape[1] - length + 1, n)
    windows = np.empty((n, length), dtype=bank.dtype)
    for window, row, start in zip(windows, rows, starts, strict=True):
        window[:] = bank[row, start : start + length]
    return windows


def _with_kernels(rng: np.random.Generator, series: Series, share: float, source: Source) -> Series:
    n, length = series.shape
    chosen = np.flatnonzero(rng.random(n) < share)
    if len(chosen) == 0:
        return series
    windows = source(rng, len(chosen), length)
    level = np.exp(rng.uniform(np.log(0.3), np.log(30), (len(chosen), 1))) * (rng.random((len(chosen), 1)) < 0.7)
    series = series.copy()
    series[chosen] = windows + level
    return series


def mean_scaled(series: Series) -> Series:
    """Divide each series by the mean absolute value of its observations; all-zero series are unchanged."""
    seen = ~np.isnan(series)
    total = np.where(seen, np.abs(series), 0.0).sum(axis=1, keepdims=True)
    scale = total / np.maximum(seen.sum(axis=1, keepdims=True), 1)
    return series / np.where(scale > 0, scale, 1.0)


def mixed_counts(rng: np.random.Generator, n: int) -> Int[np.ndarray, " mixture"]:
    """Draw the number of components of ``n`` mixtures, uniform in 1 … K."""
    return rng.integers(1, MOST_MIXED + 1, n)


def mix(
    rng: np.random.Generator,
    parts: Series,
    counts: Int[np.ndarray, " mixture"],
    concentration: float = CONCENTRATION,
) -> Float[np.ndarray, "mixture time"]:
    """Mix consecutive groups of ``counts`` series.

    Args:
        rng: source of the weights.
        parts: Σ counts series, missing outside the span that is mixed: each is scaled by what is there.
        counts: parts of each mixture, at least 1.
        concentration: Dirichlet concentration α of the weights.

    Returns:
        Mixtures (mixture, time), missing where any of their parts is.

    >>> parts = np.array([[1.0, 3.0], [np.nan, 5.0]])
    >>> mix(np.random.default_rng(0), parts, np.array([1, 1]))
    array([[0.5, 1.5],
           [nan, 1. ]])
    """
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    share = rng.standard_gamma(concentration, len(parts))
    weights = share / np.repeat(np.add.reduceat(share, first), counts)
    return np.add.reduceat(weights[:, None] * mean_scaled(parts), first, axis=0)


def mix_within(rng: np.random.Generator, series: Series, share: float, concentration: float) -> Series:
    """Replace a fraction of a batch by mixtures of 2 or 3 of its series, drawn with replacement.

    The remaining series correspond to the paper's mixtures of one.

    Args:
        rng: source of all randomness.
        series: the batch (series, time).
        share: fraction of the batch to replace.
        concentration: Dirichlet concentration of the weights.

    Returns:
        The batch with mixtures in place (series, time).
    """
    n = len(series)
    chosen = np.flatnonzero(rng.random(n) < share)
    if len(chosen) == 0:
        return series
    scaled = mean_scaled(series)
    partners = rng.integers(0, n, (len(chosen), MOST_MIXED))
    weights = rng.dirichlet(np.full(MOST_MIXED, concentration), len(chosen))
    pairs = rng.random(len(chosen)) < 0.5
    weights[pairs, MOST_MIXED - 1] = 0.0  # a subvector of a Dirichlet vector, renormalised, is Dirichlet
    weights /= weights.sum(axis=1, keepdims=True)
    mixed = series.copy()
    mixed[chosen] = np.einsum("nk,nkt->nt", weights, scaled[partners])
    return mixed
