"""What a table is made of, before and after it is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rankscope_lab.encoders.cell import NLL, Cell, RunResult
from rankscope_lab.encoders.published import Published
from rankscope_lab.encoders.tables.measures import Measure
from rankscope_lab.statistics import Spread

CellOf = Callable[[str, int, int], Cell]
"""(encoder, seed, epochs) → cell."""
Runs = Mapping[Cell, RunResult]
Checks = Callable[[Runs, int, int, Sequence[str] | None], "tuple[Check, ...]"]
"""(runs, seeds, epochs, encoders) → claims that the table makes besides its numbers."""


def synthetic(channels: int = 4, series: int = 512, d_model: int = 64, objective: str = NLL) -> CellOf:
    """Cells of one setting of the synthetic benchmark."""

    def cell(encoder: str, seed: int, epochs: int) -> Cell:
        return Cell(
            encoder,
            channels=channels,
            series=series,
            d_model=d_model,
            objective=objective,
            seed=seed,
            epochs=epochs,
        )

    return cell


def runs_of(cell: CellOf, encoder: str, runs: Runs, seeds: int, epochs: int) -> dict[int, RunResult]:
    """Seed → run, where there is one."""
    wanted = {seed: cell(encoder, seed, epochs) for seed in range(seeds)}
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
        cell: which runs.
        columns: what is read from them.
    """

    name: str
    encoders: tuple[str, ...]
    cell: CellOf
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
    first: CellOf
    second: CellOf
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
