"""Synthetic multichannel benchmark with channel-specific effects on the outcome (Lehtinen 2026, section 2.4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from rankscope.errors import OptionError

LENGTH = 160
BINS = 32
WIDEN = 1e-3
"""Margin by which the outer bin edges are widened."""
LEAD = 7
"""Leading steps with outcome 0, equal to the longest lag."""
DRIVERS = 4
"""Number of driver channels; the others are distractors."""


@dataclass(frozen=True)
class ChannelBenchmark:
    """Multichannel series with an outcome.

    Attributes:
        inputs: channels, standardised per series and channel, without the outcome.
        outcome: y, 0 in the first seven steps.
        labels: bin of each outcome.
        edges: bin edges: quantiles of all outcomes, with widened ends.
    """

    inputs: Float[np.ndarray, "series time channels"]
    outcome: Float[np.ndarray, "series time"]
    labels: Int[np.ndarray, "series time"]
    edges: Float[np.ndarray, " bins_and_one"]


def channel_benchmark(channels: int, series: int, seed: int, *, length: int = LENGTH) -> ChannelBenchmark:
    """Generate the benchmark: channels are three sinusoids plus AR(1) noise, the outcome a function of four channels.

    y_t = tanh(s₀(t−3) s₁(t)) + 0.6 sin(1.3 s₂(t−7)) + 0.4·[s₃(t) > 0]·s₀(t) for t ≥ 7, and 0 before.

    Args:
        channels: at least four; those after the fourth have no influence on the outcome.
        series: number of series.
        seed: random seed; data also depend on the number of channels and the length.
        length: time steps.

    Raises:
        OptionError: fewer than four channels, no series, or a length of at most seven.
    """
    if channels < DRIVERS:
        raise OptionError(f"channels must be at least {DRIVERS} (that many drive the outcome), got {channels}.")
    if series < 1 or length <= LEAD:
        raise OptionError(f"at least 1 series of more than {LEAD} steps are needed, got {series} of {length}.")
    rng = np.random.default_rng(seed)
    signals = np.stack([[_signal(rng, length) for _ in range(channels)] for _ in range(series)])
    centred = signals - signals.mean(-1, keepdims=True)
    scaled = (centred / (signals.std(-1, keepdims=True) + 1e-6)).astype(np.float32)
    outcome = _outcome(scaled)
    edges = bin_edges(outcome)
    return ChannelBenchmark(np.ascontiguousarray(scaled.transpose(0, 2, 1)), outcome, bin_of(outcome, edges), edges)


def _signal(rng: np.random.Generator, length: int) -> Float[np.ndarray, " time"]:
    t = np.arange(length, dtype=np.float64)
    signal = np.zeros(length)
    for _ in range(3):
        frequency = rng.uniform(0.005, 0.08)
        phase = rng.uniform(0.0, 2 * np.pi)
        signal += rng.uniform(0.5, 1.5) * np.sin(2 * np.pi * frequency * t + phase)
    noise = np.zeros(length)
    for step, innovation in enumerate(rng.normal(0.0, 0.3, length - 1), start=1):
        noise[step] = 0.85 * noise[step - 1] + innovation
    return signal + noise


def _outcome(s: Float[np.ndarray, "series channels time"]) -> Float[np.ndarray, "series time"]:
    now = slice(LEAD, None)
    length = s.shape[-1]
    earlier3, earlier7 = slice(LEAD - 3, length - 3), slice(0, length - 7)
    y = np.zeros((len(s), length), dtype=np.float32)
    y[:, now] = (
        np.tanh(s[:, 0, earlier3] * s[:, 1, now])
        + 0.6 * np.sin(1.3 * s[:, 2, earlier7])
        + 0.4 * (s[:, 3, now] > 0) * s[:, 0, now]
    )
    return y


def bin_edges(values: Float[np.ndarray, "*axes"], bins: int = BINS) -> Float[np.ndarray, " bins_and_one"]:
    """Return the edges of ``bins`` equal-mass bins: interpolated quantiles, with the ends widened by 0.001."""
    edges = np.quantile(values, np.linspace(0.0, 1.0, bins + 1))
    edges[0] -= WIDEN
    edges[-1] += WIDEN
    return edges


def bin_of(values: Float[np.ndarray, "*axes"], edges: Float[np.ndarray, " bins_and_one"]) -> Int[np.ndarray, "*axes"]:
    """Return the bin index of each value; values outside the range fall into the first or last bin."""
    return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2).astype(np.int64)
