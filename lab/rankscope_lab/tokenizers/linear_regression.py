"""Linear regression by stochastic gradient descent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.errors import DataError, OptionError, check_least

BLOWN_UP = 1e6
"""Ratio to the initial loss above which training counts as diverged."""


@dataclass(frozen=True)
class SgdSettings:
    """Step, batches and epochs of the descent.

    Attributes:
        learning_rate: η; None: half of `stability_bound`.
        batch_size: rows per step; None: all.
        epochs: passes over the rows, in a new order each.
        seed: of θ_0 and the orders.
    """

    learning_rate: float | None = None
    batch_size: int | None = 256
    epochs: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        """Validate the fields.

        Raises:
            OptionError: a number out of range.
        """
        check_least(self, 1, ("epochs", "batch_size"))
        if self.learning_rate is not None and not self.learning_rate > 0:
            raise OptionError(
                f"learning_rate must be above 0, got {self.learning_rate:g}: steps go against the gradient."
            )


@dataclass(frozen=True)
class LinearFit:
    """Result of the descent.

    Attributes:
        settings: what was asked for.
        theta: the weights.
        bias: β.
        losses: over all rows, before the first epoch and after each; a diverged descent ends early.
        learning_rate: η.
        bound: `stability_bound` of the rows.
        least: loss of the least-squares solution, the lowest there is.
    """

    settings: SgdSettings
    theta: Float[Tensor, " features"]
    bias: float
    losses: tuple[float, ...]
    learning_rate: float
    bound: float
    least: float

    KEYS: ClassVar = ("settings", "theta", "bias", "losses", "learning_rate", "bound", "least", "diverged")

    @property
    def diverged(self) -> bool:
        """True if the loss diverged because η is too large."""
        return not math.isfinite(self.losses[-1]) or self.losses[-1] > BLOWN_UP * max(self.losses[0], 1e-12)


def mean_squared_error(
    x: Float[Tensor, "rows features"],
    y: Float[Tensor, " rows"],
    theta: Float[Tensor, " features"],
    bias: float | Tensor,
) -> Float[Tensor, ""]:
    """L = (1/N) Σ_i (y_i − x_i θ − β)²."""
    return (y - x @ theta - bias).square().mean()


def gradients(
    x: Float[Tensor, "rows features"],
    y: Float[Tensor, " rows"],
    theta: Float[Tensor, " features"],
    bias: float | Tensor,
) -> tuple[Float[Tensor, " features"], Float[Tensor, ""]]:
    """∂L/∂θ = (2/N) Xᵀ(ŷ − y) and ∂L/∂β = (2/N) Σ(ŷ − y)."""
    residual = x @ theta + bias - y
    return 2 * (x.mT @ residual) / len(x), 2 * residual.mean()


def stability_bound(x: Float[Tensor, "rows features"]) -> float:
    """Return the largest stable η for full batches: 1 / λ_max(X̃ᵀX̃ / N), with X̃ = [X 1].

    The Hessian of L is 2 X̃ᵀX̃ / N, and a step of η keeps an error along an eigenvector by the factor 1 − ηλ, which is
    below 1 in size for η < 2/λ. Batches of few rows may need less.
    """
    wide = torch.cat([x, x.new_ones(len(x), 1)], 1).double()
    return 1.0 / float(torch.linalg.eigvalsh(wide.mT @ wide / len(x))[-1])


def least_squares(
    x: Float[Tensor, "rows features"], y: Float[Tensor, " rows"]
) -> tuple[Float[Tensor, " features"], float]:
    """Return the least-squares θ and β."""
    wide = torch.cat([x, x.new_ones(len(x), 1)], 1).double()
    solution = torch.linalg.lstsq(wide, y.double()[:, None], driver="gelsd").solution[:, 0]
    return solution[:-1].to(x), float(solution[-1])


def fit_linear(
    x: Float[Tensor, "rows features"], y: Float[Tensor, " rows"], settings: SgdSettings | None = None
) -> LinearFit:
    """Fit y ≈ X θ + β: θ_0 ~ U(0, 1), β_0 = 0, θ ← θ − η ∂L/∂θ and β ← β − η ∂L/∂β on each batch.

    The problem is convex, so where θ starts makes no difference in the end.

    Raises:
        DataError: no rows, or values that are not finite.
    """
    chosen = settings or SgdSettings()
    if not len(x) or not bool(torch.isfinite(x).all() and torch.isfinite(y).all()):
        raise DataError(f"linear regression needs finite rows, got {len(x)} with gaps or none: fill or cut them first.")
    bound = stability_bound(x)
    eta = chosen.learning_rate or bound / 2
    generator = torch.Generator().manual_seed(chosen.seed)
    theta = torch.rand(x.shape[1], generator=generator, dtype=x.dtype)
    bias = x.new_zeros(())
    losses = [float(mean_squared_error(x, y, theta, bias))]
    for _ in range(chosen.epochs):
        for rows in torch.randperm(len(x), generator=generator).split(chosen.batch_size or len(x)):
            slope, shift = gradients(x[rows], y[rows], theta, bias)
            theta, bias = theta - eta * slope, bias - eta * shift
        losses.append(float(mean_squared_error(x, y, theta, bias)))
        if not losses[-1] <= BLOWN_UP * max(losses[0], 1e-12):
            break
    least = float(mean_squared_error(x, y, *least_squares(x, y)))
    return LinearFit(chosen, theta, float(bias), tuple(losses), eta, bound, least)
