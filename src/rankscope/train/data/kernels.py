"""Kernel bank of KernelSynth and random compositions, as published in the Chronos paper.

Source: arXiv 2403.07815, appendix A (Table 2 and Algorithm 2), and the list in the paper's released script for what the
table leaves open: periods that serve several calendars stand several times, and the numbers of white noise are
variances. Series live on the unit interval, x = 0 … 1; a period is a whole number of observations. (The script divides
periods by the number of observations, not of steps between them, which makes a period of 24 one of 23.98.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

Matrix = Float[np.ndarray, "rows columns"]

MOST_KERNELS = 5
"""J of the paper: maximum number of base kernels in a composition."""


@dataclass(frozen=True)
class BaseKernel:
    """Entry of the kernel bank.

    Attributes:
        name: a key of `SMOOTH`, ``periodic`` or ``white``.
        value: its hyper-parameter: length scale (rbf), α (rational-quadratic), σ (linear), variance (white), level
            (constant), or period in observations (periodic).
    """

    name: str
    value: float

    def __str__(self) -> str:
        return f"{self.name}({self.value:g})"


def _bank() -> tuple[BaseKernel, ...]:
    calendar = {
        "hours, halves, quarters by day and week": (24, 48, 96, 168, 336, 672),
        "days and half days by week, month and year": (7, 14, 30, 60, 365, 730),
        "weeks": (4, 26, 52),
        "months": (4, 6, 12),
        "quarters": (4, 40),
        "years": (10,),
    }
    others = {
        "linear": (0.0, 1.0, 10.0),
        "rbf": (0.1, 1.0, 10.0),
        "rational-quadratic": (0.1, 1.0, 10.0),
        "white": (0.1, 1.0),
        "constant": (1.0,),
    }
    periodic = [BaseKernel("periodic", float(period)) for periods in calendar.values() for period in periods]
    return (*periodic, *(BaseKernel(name, value) for name, values in others.items() for value in values))


BANK: tuple[BaseKernel, ...] = _bank()
"""The 33 base kernels; a composition draws from them uniformly, with replacement."""

SMOOTH: dict[str, Callable[[Matrix, Matrix, float], Matrix]] = {
    "constant": lambda x, y, value: np.full(np.broadcast_shapes(x.shape, y.shape), value),
    "linear": lambda x, y, value: value**2 + x * y,
    "rbf": lambda x, y, value: np.exp(-0.5 * ((x - y) / value) ** 2),
    "rational-quadratic": lambda x, y, value: (1 + (x - y) ** 2 / (2 * value)) ** -value,
}
"""Analytic kernels on the unit interval, as functions of a column and a row of points."""


@dataclass(frozen=True)
class Composition:
    """Base kernels joined from left to right by sums and products: ``((k₁ ∘ k₂) ∘ k₃) …``.

    Attributes:
        bases: 1 to J base kernels.
        products: for every kernel but the first, True to multiply and False to add.
    """

    bases: tuple[BaseKernel, ...]
    products: tuple[bool, ...]

    def __str__(self) -> str:
        text = str(self.bases[0])
        for times, base in zip(self.products, self.bases[1:], strict=True):
            text = f"({text}) × {base}" if times and " + " in text else f"{text} {'×' if times else '+'} {base}"
        return text


def random_composition(rng: np.random.Generator) -> Composition:
    """Draw a composition of 1 to `MOST_KERNELS` kernels, joined by sums or products with equal probability."""
    count = int(rng.integers(1, MOST_KERNELS + 1))
    picks = rng.integers(0, len(BANK), count)
    return Composition(tuple(BANK[p] for p in picks), tuple(bool(b) for b in rng.random(count - 1) < 0.5))


def grid(length: int) -> Float[np.ndarray, " time"]:
    """Return the times of the observations, 0 … 1."""
    return np.linspace(0.0, 1.0, length)


def periodic_row(periods: tuple[int, ...], lags: Float[np.ndarray, " lag"]) -> Float[np.ndarray, " lag"]:
    """Product of periodic kernels exp(−2 sin²(π h/p)) at lags of h observations."""
    exponent = sum((np.sin(np.pi * (lags % p) / p) ** 2 for p in periods), np.zeros(len(lags)))
    return np.exp(-2 * exponent)
