"""Slopes on double logarithmic axes, with their confidence intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import stats

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Slope:
    """A fitted exponent.

    Attributes:
        value: the exponent.
        low: lower end of its 95 % confidence interval.
        high: upper end.
        samples: independent draws behind it: seeds, or points.
    """

    value: float
    low: float
    high: float
    samples: int

    def text(self, digits: int) -> str:
        """Exponent with its interval."""
        return f"{self.value:.{digits}f} (95 %: {self.low:.{digits}f} to {self.high:.{digits}f})"


def exponent(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> float:
    """Least-squares slope of log y over log x.

    >>> round(exponent(np.array([1.0, 2.0, 4.0]), np.array([1.0, 4.0, 16.0])), 12)
    2.0
    """
    return float(stats.linregress(np.log(x), np.log(y)).slope)


def slope_of_points(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> Slope:
    """Slope of log y over log x where all points were drawn independently: Student's interval of the regression."""
    fit = stats.linregress(np.log(x), np.log(y))
    half = stats.t.ppf(0.5 + CONFIDENCE / 2, len(x) - 2) * fit.stderr
    return Slope(float(fit.slope), float(fit.slope - half), float(fit.slope + half), len(x))


def slope_of_seeds(slopes: Float[np.ndarray, " seeds"]) -> Slope:
    """Mean of one slope per seed, with Student's interval over the seeds.

    Points of one seed share their matrices, so that a regression's own interval would be far too narrow.
    """
    mean, n = float(slopes.mean()), len(slopes)
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, n - 1) * slopes.std(ddof=1) / n**0.5) if n > 1 else float("nan")
    return Slope(mean, mean - half, mean + half, n)
