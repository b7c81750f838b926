"""Tables of the audit: their settings and columns, the measures read from one run, and the rows that come of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rankscope_lab.data.channels import DRIVERS
from rankscope_lab.encoders.published import DIFFERS, EQUAL, Published
from rankscope_lab.encoders.run_spec import EPOCHS, NLL, RunResult, RunSpec
from rankscope_lab.statistics import ROUNDING, Spread

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


def convergence(run: RunResult) -> float:
    """First validated epoch whose loss is at most the run's best plus `MARGIN`."""
    best = min(point.loss for point in run.points)
    return float(next(point.epoch for point in run.points if point.loss <= best + MARGIN))


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


PUBLISHED_SEEDS = 20


@dataclass(frozen=True)
class Protocol:
    """Size of the runs that tables are made from.

    Attributes:
        seeds: 0, 1, … below it, of every setting; a table takes no more than it was printed from.
        epochs: of every run.
        encoders: only these; none: all that the tables have.
        tables: by name, in the order of print.
    """

    seeds: int = PUBLISHED_SEEDS
    epochs: int = EPOCHS
    encoders: tuple[str, ...] | None = None
    tables: tuple[str, ...] = ()

    def takes(self, *encoders: str) -> bool:
        """Return True if all of these encoders are asked for."""
        return self.encoders is None or set(encoders) <= set(self.encoders)

    @property
    def published(self) -> bool:
        """True if the runs are as long and as many as the paper's."""
        return self.epochs == EPOCHS and self.seeds >= PUBLISHED_SEEDS

    @property
    def warning(self) -> str:
        """Difference from the paper's protocol; empty where there is none."""
        if self.epochs != EPOCHS:
            return (
                f"Not the paper's protocol: {self.seeds} seeds × {self.epochs} epochs in place of {PUBLISHED_SEEDS} × "
                f"{EPOCHS}; verdicts say little."
            )
        if self.seeds < PUBLISHED_SEEDS:
            return f"Fewer seeds than the paper's {PUBLISHED_SEEDS}: {self.seeds}."
        return ""


SpecOf = Callable[[str, int, int], RunSpec]
"""(encoder, seed, epochs) → run."""
Runs = Mapping[RunSpec, RunResult]
Checks = Callable[[Runs, Protocol], "tuple[Check, ...]"]
"""(runs, what is asked for) → claims that the table makes besides its numbers."""


def synthetic(channels: int = 4, series: int = 512, d_model: int = 64, objective: str = NLL) -> SpecOf:
    """Runs of one setting of the synthetic benchmark."""

    def spec(encoder: str, seed: int, epochs: int) -> RunSpec:
        return RunSpec(
            encoder,
            channels=channels,
            series=series,
            d_model=d_model,
            objective=objective,
            seed=seed,
            epochs=epochs,
        )

    return spec


def runs_of(spec: SpecOf, encoder: str, runs: Runs, asked: Protocol) -> dict[int, RunResult]:
    """Seed → run, where there is one."""
    wanted = {seed: spec(encoder, seed, asked.epochs) for seed in range(asked.seeds)}
    return {seed: runs[one] for seed, one in wanted.items() if one in runs}


@dataclass(frozen=True)
class Column:
    """One measure of a table.

    Attributes:
        name: in the printed numbers.
        title: shown.
        of: reads it from a run.
        digits: shown after the point.
        exact: a count: printed and measured are equal or not.
        relative: an encoder over whose mean every number is divided, of the same seeds, run on the same machine in
            the same way; empty: none.
        interval: whether a bootstrap interval belongs to it.
        timing: depends on the machine, so it is shown and not judged.
        grid: step between the values that a run can have; half of it is granted, as half of the last printed digit is.
    """

    name: str
    title: str
    of: Measure
    digits: int = 3
    exact: bool = False
    relative: str = ""
    interval: bool = False
    timing: bool = False
    grid: int = 0


@dataclass(frozen=True)
class Setting:
    """A group of rows: the same setting, several encoders.

    Attributes:
        name: in the printed numbers.
        encoders: in the order of print.
        spec: which runs.
        columns: what is read from them.
    """

    name: str
    encoders: tuple[str, ...]
    spec: SpecOf
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Contrast:
    """Rows of differences, seed by seed: first − second.

    Attributes:
        name: of the setting that these rows form.
        encoders: pairs (first, second), named after the first.
        first: setting of the first.
        second: setting of the second.
        column: what is compared.
    """

    name: str
    encoders: tuple[tuple[str, str], ...]
    first: SpecOf
    second: SpecOf
    column: Column


@dataclass(frozen=True)
class TableSpec:
    """A table of the paper.

    Attributes:
        id: ``1`` to ``13``, ``bias``, ``large``.
        title: what it shows.
        settings: its rows.
        contrasts: rows of differences, after the others.
        population: deviations are those of the population.
        note: how to read it.
        checks: claims besides the numbers; none: no such.
    """

    id: str
    title: str
    settings: tuple[Setting, ...]
    contrasts: tuple[Contrast, ...] = ()
    population: bool = False
    note: str = ""
    checks: Checks | None = None


@dataclass(frozen=True)
class Row:
    """One number of a table beside the printed one.

    Attributes:
        setting: such as ``C=4``.
        encoder: which.
        measure: name of the column.
        title: of the column.
        digits: shown after the point.
        summary: over the seeds that the table was printed from.
        wanted: how many of these seeds there should be.
        diverged: runs left out because a loss was not finite.
        overall: over all seeds there are.
        values: seed → number.
        interval: of the mean, 95 %, by bootstrap; none where not asked for or below two seeds.
        published: the printed number; none: not printed.
        difference: measured − printed.
        verdict: of `rankscope_lab.encoders.published.verdict`; empty where it cannot be given.
        p: of Welch's t-test against the printed mean and deviation, `rankscope_lab.statistics.welch`; none where print
            states no sample deviation, or ours has none.
        counted: a judged number that is not a constant and not of runs that an earlier table judged by it.
        adjusted: p by Holm's method over the counted numbers of all tables asked for; none for others, and
            where p is none.
    """

    setting: str
    encoder: str
    measure: str
    title: str
    digits: int
    summary: Spread
    wanted: int
    diverged: int
    overall: Spread
    values: Mapping[int, float]
    interval: tuple[float, float] | None
    published: Published | None
    difference: float | None
    verdict: str
    p: float | None = None
    counted: bool = False
    adjusted: float | None = None

    @property
    def constant(self) -> bool:
        """True for a count, and for a number that is the same in every seed."""
        return self.verdict in (EQUAL, DIFFERS) or (
            self.overall.std is not None and self.overall.std <= ROUNDING * abs(self.overall.mean)
        )


@dataclass(frozen=True)
class Check:
    """A claim of a table besides its numbers.

    Attributes:
        subject: of which encoder.
        claim: what is claimed.
        holds: in the mean over seeds.
        seeds: in how many of them it holds.
        n: seeds.
    """

    subject: str
    claim: str
    holds: bool
    seeds: int
    n: int


@dataclass(frozen=True)
class TableResult:
    """A computed table.

    Attributes:
        id: as asked for.
        title: what it shows.
        rows: one per setting, encoder and measure.
        notes: how to read it; what is missing, diverged or cut short.
        checks: claims besides the numbers.
    """

    id: str
    title: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
