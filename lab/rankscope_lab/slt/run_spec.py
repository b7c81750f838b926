"""Protocol, specification and result of an SLT run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rankscope.errors import DataError, OptionError, unknown_choice
from rankscope_lab.data.windows import FIFTHS, MONTHS
from rankscope_lab.machine import FLOAT32, PRECISIONS
from rankscope_lab.slt.forecasters import HORIZON, LOOKBACK
from rankscope_lab.slt.models import NAIVE, check_model

LAST, BEST = "last", "best"
"""Weights whose test score counts: after the last epoch, or after the one with the least validation MSE."""


@dataclass(frozen=True)
class Protocol:
    """Evaluation protocol: all settings except data, model and seed.

    Attributes:
        name: as options write it.
        about: one line.
        split: see `rankscope_lab.data.windows.split_rows`.
        reach_back: whether look-backs may begin in the part before.
        choice: `LAST` or `BEST`.
        first_columns: of wide tables only so many are used; table → number.
        epochs: through the training windows, in random order, the last smaller batch kept.
        batch: windows per step, all variables of each.
        learning_rate: of Adam, constant, without weight decay.
        clip: largest norm of the gradient.
    """

    name: str
    about: str
    split: str
    reach_back: bool
    choice: str
    first_columns: tuple[tuple[str, int], ...] = ()
    epochs: int = 10
    batch: int = 32
    learning_rate: float = 1e-4
    clip: float = 1.0


RELEASED = Protocol(
    "released",
    "rows 60/20/20, every part windowed alone, weights of the last epoch",
    FIFTHS,
    reach_back=False,
    choice=LAST,
    first_columns=(("traffic", 100),),
)
FIELD = Protocol(
    "field",
    "12/4/4 months (ETT) or rows 70/10/20, look-backs cross parts, weights of the best validation",
    MONTHS,
    reach_back=True,
    choice=BEST,
)
PROTOCOLS = {one.name: one for one in (RELEASED, FIELD)}


def protocol(name: str) -> Protocol:
    """Return a protocol by name.

    Raises:
        OptionError: there is none.
    """
    if name not in PROTOCOLS:
        raise OptionError(unknown_choice("protocol", name, PROTOCOLS))
    return PROTOCOLS[name]


@dataclass(frozen=True)
class RunSpec:
    """One run: a model on a table under a protocol, with one seed.

    Attributes:
        dataset: name of the table: its file without suffix.
        model: one of `rankscope_lab.slt.models.MODELS`.
        protocol: ``released`` or ``field``.
        revin: whether instances are normalised.
        seed: of weights, order and dropout.
        epochs: through the training windows; 0 where nothing is learned.
        precision: one of `PRECISIONS`.
        horizon: steps forecast.
        lookback: steps read.
    """

    dataset: str
    model: str
    protocol: str = RELEASED.name
    revin: bool = False
    seed: int = 0
    epochs: int = RELEASED.epochs
    precision: str = FLOAT32
    horizon: int = HORIZON
    lookback: int = LOOKBACK

    def __post_init__(self) -> None:
        """Validate the fields.

        Raises:
            OptionError: an unknown model, protocol or precision, or numbers out of range.
        """
        check_model(self.model)
        protocol(self.protocol)
        if self.precision not in PRECISIONS:
            raise OptionError(unknown_choice("precision", self.precision, PRECISIONS))
        least = 0 if self.model == NAIVE else 1
        if self.epochs < least or self.seed < 0:
            raise OptionError(f"epochs must be at least {least} and seed at least 0, got {self.epochs}, {self.seed}.")

    @property
    def id(self) -> str:
        """Name of its files.

        >>> RunSpec("ETTh1", "slt", seed=2).id
        'ETTh1-released-slt-e10-s2'
        >>> RunSpec("ETTh1", "slt", "field", revin=True, precision="bfloat16", horizon=24).id
        'ETTh1-field-revin-h24-slt-e10-bfloat16-s0'
        """
        parts = [self.dataset, self.protocol, "revin" if self.revin else ""]
        parts += [f"l{self.lookback}" if self.lookback != LOOKBACK else ""]
        parts += [f"h{self.horizon}" if self.horizon != HORIZON else "", self.model, f"e{self.epochs}"]
        parts += [self.precision if self.precision != FLOAT32 else "", f"s{self.seed}"]
        return "-".join(part for part in parts if part)


@dataclass(frozen=True)
class Score:
    """Errors over all steps, variables and windows of a part, in scaled units."""

    mse: float
    mae: float


@dataclass(frozen=True)
class Epoch:
    """Errors at the end of an epoch.

    Attributes:
        number: from 1; 0 where nothing is learned.
        train: mean over the epoch's batches, dropout on, weights changing.
        validation: with the weights after the epoch.
        test: likewise.
        seconds: of training; scoring is not in it.
    """

    number: int
    train: Score
    validation: Score
    test: Score
    seconds: float

    @property
    def finite(self) -> bool:
        """True if all errors are finite."""
        scores = (self.train, self.validation, self.test)
        return all(math.isfinite(value) for score in scores for value in (score.mse, score.mae))


@dataclass(frozen=True)
class WindowCounts:
    """Windows of each part."""

    train: int
    validation: int
    test: int


@dataclass(frozen=True)
class RunResult:
    """Record of a finished or unfinished run.

    Attributes:
        spec: which.
        epochs: in order; of a run that is under way, those so far.
        parameters: trained numbers.
        columns: variables.
        windows: of each part.
        windows_per_second: median, least and largest over the passes, in eval mode, batches of 32.
        machine: what it ran on, and how.
        ranks: what `rankscope_lab.measure` says of the weights after epoch `chosen`; empty where nothing was learned.
        digest: of the table's columns and values; empty in results that were written without.
    """

    spec: RunSpec
    epochs: tuple[Epoch, ...]
    parameters: int
    columns: int
    windows: WindowCounts
    windows_per_second: tuple[float, float, float] = (math.nan, math.nan, math.nan)
    machine: str = ""
    ranks: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""

    SCHEMA: ClassVar = "rankscope/lab-slt-run@1"
    KEYS: ClassVar = (
        *("cell=spec", "epochs", "parameters", "columns", "windows", "windows_per_second", "machine", "ranks"),
        "digest",
    )

    @property
    def diverged(self) -> bool:
        """True if an error is not finite; such runs are counted but excluded from means."""
        return not all(epoch.finite for epoch in self.epochs)

    @property
    def last(self) -> Epoch:
        """The last epoch."""
        return self.epochs[-1]

    @property
    def best(self) -> Epoch:
        """First epoch with the lowest validation MSE."""
        finite = [epoch for epoch in self.epochs if epoch.finite]
        if not finite:
            raise DataError(f"run {self.spec.id} diverged in its first epoch: it has no best one.")
        return min(finite, key=lambda epoch: epoch.validation.mse)

    @property
    def chosen(self) -> Epoch:
        """The epoch whose test score counts under the run's protocol."""
        return {LAST: lambda: self.last, BEST: lambda: self.best}[protocol(self.spec.protocol).choice]()

    @property
    def seconds_per_epoch(self) -> float:
        """Median over the epochs."""
        seconds = sorted(epoch.seconds for epoch in self.epochs)
        return (seconds[(len(seconds) - 1) // 2] + seconds[len(seconds) // 2]) / 2

    def within(self, seconds: float) -> Epoch | None:
        """Return the last epoch finished within so many seconds of training, or None."""
        spent, found = 0.0, None
        for epoch in self.epochs:
            spent += epoch.seconds
            if spent <= seconds:
                found = epoch
        return found
