"""What tables read from one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rankscope_lab.data.channels import DRIVERS
from rankscope_lab.encoders.cell import Point, RunResult

Measure = Callable[[RunResult], float | None]
"""A number of a run; none where it was not measured."""

MARGIN = 0.05


def loss(run: RunResult) -> float:
    """Lowest validation loss."""
    return run.best.loss


def accuracy(run: RunResult) -> float:
    """Accuracy (R² under MSE) at the validation with the lowest loss."""
    return run.best.accuracy


def parameters(run: RunResult) -> float:
    """Trained numbers."""
    return float(run.parameters)


def encoder_parameters(run: RunResult) -> float:
    """Those of the encoder."""
    return float(run.encoder_parameters)


def seconds(run: RunResult) -> float | None:
    """Wall time of the run, validation included; of a run that was cut short none."""
    return None if run.cut else run.seconds


def epoch_within(points: Sequence[Point], margin: float = MARGIN) -> int:
    """First validated epoch whose loss is at most the run's best plus ``margin``.

    >>> epoch_within([Point(1, 3.4, 3.0, 0.1), Point(20, 2.4, 2.04, 0.2), Point(40, 2.1, 2.0, 0.2)])
    20
    """
    best = min(point.loss for point in points)
    return next(point.epoch for point in points if point.loss <= best + margin)


def convergence(run: RunResult) -> float:
    """`epoch_within` of the run's validations."""
    return float(epoch_within(run.points))


def diagnostic(name: str, field: str) -> Measure:
    """A number of one diagnostic."""

    def read(run: RunResult) -> float | None:
        value = run.diagnostics.get(name, {}).get(field)
        return None if value is None else float(value)

    return read


def leading_value(run: RunResult) -> float | None:
    """Largest singular value of the positions."""
    sigma = run.diagnostics.get("position", {}).get("sigma")
    return float(sigma[0]) if sigma else None


def mean_over(name: str, part: slice) -> Measure:
    """Mean of a diagnostic's numbers over some channels."""

    def read(run: RunResult) -> float | None:
        values = run.diagnostics.get(name, [])[part]
        return sum(values) / len(values) if values else None

    return read


def sum_over(name: str, part: slice) -> Measure:
    """Sum of a diagnostic's numbers over some channels."""

    def read(run: RunResult) -> float | None:
        values = run.diagnostics.get(name, [])[part]
        return float(sum(values)) if values else None

    return read


DRIVING, DISTRACTING = slice(0, DRIVERS), slice(DRIVERS, None)
driver_norm = mean_over("norms", DRIVING)
distractor_norm = mean_over("norms", DISTRACTING)


def norm_ratio(run: RunResult) -> float | None:
    """Mean norm of the driving channels over that of the others."""
    driver, distractor = driver_norm(run), distractor_norm(run)
    return driver / distractor if driver is not None and distractor else None


def probe(depth: int, channel: int | None) -> Measure:
    """R² of a channel's probe at a depth of the stream; without a channel the mean over them."""

    def read(run: RunResult) -> float | None:
        depths = run.diagnostics.get("probe")
        if not depths:
            return None
        values = depths[depth]
        return float(sum(values) / len(values) if channel is None else values[channel])

    return read


def masked(channel: int) -> Measure:
    """Accuracy after the last epoch with a channel at 0."""

    def read(run: RunResult) -> float | None:
        values = run.diagnostics.get("mask", {}).get("masked")
        return float(values[channel]) if values else None

    return read
