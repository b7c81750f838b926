"""Specification and result of an audit run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rankscope.errors import DataError, OptionError, unknown_choice
from rankscope_lab.machine import FLOAT32

SYNTHETIC, ETTH1 = "synthetic", "etth1"
NLL, MSE = "nll", "mse"

DROP_IN = ("sum", "linear", "linear-ortho", "linear-ppe", "mlp", "concat")
"""Encoders that map a time step to a token, before the same transformer."""
ARCHITECTURES = ("ci", "cat")
"""Every channel on its own; every channel a token."""
ABLATIONS = ("linear-nobias", "linear-scaled", "linear-rotated")
"""linear without biases; linear with p(t) scaled as ppe scales it; linear-ppe with an orthogonal position map."""
ENCODERS = (*DROP_IN, *ARCHITECTURES, *ABLATIONS)

EPOCHS = 300
ETTH1_CHANNELS = 7
STATES = ("converged", "improving", "overfitting", "diverged")


@dataclass(frozen=True)
class RunSpec:
    """One run: an encoder in one setting, with one seed.

    Attributes:
        encoder: one of `ENCODERS`.
        data: ``synthetic`` or ``etth1``.
        channels: of the series; 7 on ETTh1.
        series: generated series, train and validation together; 0 on ETTh1.
        d_model: width of tokens.
        objective: ``nll`` (32 bins) or ``mse`` (the outcome itself).
        seed: of initialisation, order and dropout, and on the synthetic data of the data and its split.
        epochs: of the cosine schedule.
    """

    encoder: str
    data: str = SYNTHETIC
    channels: int = 4
    series: int = 512
    d_model: int = 64
    objective: str = NLL
    seed: int = 0
    epochs: int = EPOCHS

    def __post_init__(self) -> None:
        """Refuse what cannot be run.

        Raises:
            OptionError: an unknown encoder, data set or objective, or numbers out of range.
        """
        if self.encoder not in ENCODERS:
            raise OptionError(unknown_choice("encoder", self.encoder, ENCODERS))
        if self.data not in (SYNTHETIC, ETTH1):
            raise OptionError(unknown_choice("data", self.data, (SYNTHETIC, ETTH1)))
        if self.objective not in (NLL, MSE):
            raise OptionError(unknown_choice("objective", self.objective, (NLL, MSE)))
        if self.epochs < 1 or self.seed < 0:
            raise OptionError(f"epochs must be at least 1 and seed at least 0, got {self.epochs} and {self.seed}.")
        if self.channels < 1 or (self.data == ETTH1 and self.channels != ETTH1_CHANNELS):
            needed = f"ETTh1 has {ETTH1_CHANNELS}" if self.data == ETTH1 else "at least 1 is needed"
            raise OptionError(f"{self.channels} channels: {needed}.")
        if self.encoder == "concat" and self.d_model % self.channels:
            raise OptionError(
                f"concat gives every channel d_model / C dimensions: {self.channels} channels do not divide "
                f"d_model {self.d_model}. Choose a multiple of {self.channels}, or another encoder."
            )

    @property
    def heads(self) -> int:
        """4 on the synthetic data, 7 on ETTh1."""
        return ETTH1_CHANNELS if self.data == ETTH1 else 4

    @property
    def id(self) -> str:
        """Name of its files: setting, encoder, seed.

        >>> RunSpec("linear", seed=3).id
        'synthetic-c4-n512-d64-nll-e300-linear-s3'
        """
        size = f"c{self.channels}-n{self.series}-d{self.d_model}"
        return f"{self.data}-{size}-{self.objective}-e{self.epochs}-{self.encoder}-s{self.seed}"


def etth1_spec(encoder: str, seed: int, epochs: int = EPOCHS) -> RunSpec:
    """A run on ETTh1: 7 channels, d_model 56."""
    return RunSpec(encoder, ETTH1, channels=ETTH1_CHANNELS, series=0, d_model=56, seed=seed, epochs=epochs)


@dataclass(frozen=True)
class Point:
    """One validation.

    Attributes:
        epoch: after which, from 1.
        train_loss: mean over the steps of that epoch; with the penalty of linear-ortho.
        loss: validation NLL (nats) or MSE over all scored positions.
        accuracy: share of positions whose likeliest bin is right; R² under MSE.
    """

    epoch: int
    train_loss: float
    loss: float
    accuracy: float


@dataclass(frozen=True)
class RunResult:
    """Record of a finished run.

    Attributes:
        spec: which.
        points: validations in order: after epochs 1, 20, 40, …; the last one shows where training ended.
        parameters: trained numbers.
        encoder_parameters: those of the encoder.
        seconds: wall time of the run, validation included.
        stopped: epoch after which the run was cut short by the caller; 0 for a whole run.
        diagnostics: name → numbers, measured on the weights after the last epoch; empty where the run diverged.
        machine: device and how many runs shared it.
        precision: of matrix products: ``float32``, as published, or ``bfloat16``.
        digest: of the table's columns and values; empty for generated series, and in results that were written without.
    """

    spec: RunSpec
    points: tuple[Point, ...]
    parameters: int
    encoder_parameters: int
    seconds: float
    stopped: int = 0
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    machine: str = ""
    precision: str = FLOAT32
    digest: str = ""

    SCHEMA: ClassVar = "rankscope/lab-encoder-run@1"
    KEYS: ClassVar = (
        *("cell=spec", "points", "parameters", "encoder_parameters", "seconds", "stopped", "diagnostics", "machine"),
        *("precision", "digest"),
    )

    @property
    def diverged(self) -> bool:
        """A loss was not finite: such a run is counted, and enters no mean."""
        return any(not (math.isfinite(point.loss) and math.isfinite(point.train_loss)) for point in self.points)

    @property
    def cut(self) -> bool:
        """True if the caller ended the run before its last epoch; one that diverged had ended by itself."""
        return self.stopped > 0 and not self.diverged

    @property
    def best(self) -> Point:
        """The validation with the lowest loss; the first such."""
        finite = [point for point in self.points if math.isfinite(point.loss)]
        if not finite:
            raise DataError(f"run {self.spec.id} diverged before its first validation: it has no best point.")
        return min(finite, key=lambda point: point.loss)

    @property
    def state(self) -> str:
        """`STATES`: how the run ended, from its validations (specification of the audit, section 8)."""
        if self.diverged:
            return "diverged"
        last, best = self.points[-1], self.best
        if best.epoch >= self.spec.epochs - 20:
            third = self.points[max(len(self.points) - 3, 0)]
            return "converged" if third.loss - last.loss < 0.005 else "improving"
        return "overfitting" if last.loss > best.loss + 0.01 else "converged"
