"""The paired tests of the text, and those that follow from the released runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rankscope_lab.encoders.cell import EPOCHS, Cell
from rankscope_lab.encoders.published import PublishedTest, agrees, published_tests
from rankscope_lab.encoders.tables.catalogue import NLL_COLUMN, SETTINGS
from rankscope_lab.encoders.tables.compute import read_values, said_of
from rankscope_lab.encoders.tables.record import Runs, runs_of
from rankscope_lab.statistics import Paired, bootstrap_interval, differences, paired

PAIRED = "paired"
_PPE = ("linear-ppe", "linear")


@dataclass(frozen=True)
class PairedRow:
    """One comparison beside the printed one.

    Attributes:
        published: the printed test: setting, both encoders, difference, p, wins.
        measured: ours, NLL of the other less that of the better; none where the two encoders share no seed.
        interval: of the mean difference, by `bootstrap_interval`; none likewise, or with one seed.
        agrees: whether both say the same at the level 0.05; none where that cannot be said.
    """

    published: PublishedTest
    measured: Paired | None
    interval: tuple[float, float] | None
    agrees: bool | None


@dataclass(frozen=True)
class PairedTable:
    """All comparisons.

    Attributes:
        rows: in the order of print.
        notes: what is missing; wins of linear-ppe over all widths.
    """

    rows: tuple[PairedRow, ...]
    notes: tuple[str, ...]


def paired_cells(seeds: int, epochs: int = EPOCHS, encoders: Sequence[str] | None = None) -> list[Cell]:
    """Runs that the tests need."""
    chosen = [
        SETTINGS[test.setting](encoder, seed, epochs)
        for test in _chosen(encoders)
        for encoder in (test.better, test.other)
        for seed in range(min(seeds, test.n))
    ]
    return list(dict.fromkeys(chosen))


def compute_paired(runs: Runs, seeds: int, epochs: int = EPOCHS, encoders: Sequence[str] | None = None) -> PairedTable:
    """Test the best losses of both encoders, seed by seed; diverged runs are left out."""
    rows = tuple(_row(test, runs, min(seeds, test.n), epochs) for test in _chosen(encoders))
    notes = said_of(paired_cells(seeds, epochs, encoders), runs)
    widths = [
        row.measured
        for row in rows
        if (row.published.better, row.published.other) == _PPE and row.published.setting in ("C=4", "d=128", "d=256")
    ]
    if len(widths) == 3 and all(widths):
        wins, n = sum(one.higher for one in widths if one), sum(one.difference.n for one in widths if one)
        notes.append(f"linear-ppe before linear over the three widths: {wins} of {n} seeds (printed: 56 of 60).")
    return PairedTable(rows, tuple(notes))


def _chosen(encoders: Sequence[str] | None) -> list[PublishedTest]:
    return [test for test in published_tests() if encoders is None or {test.better, test.other} <= set(encoders)]


def _row(test: PublishedTest, runs: Runs, seeds: int, epochs: int) -> PairedRow:
    cell = SETTINGS[test.setting]
    better, other = (
        read_values(NLL_COLUMN, runs_of(cell, encoder, runs, seeds, epochs)) for encoder in (test.better, test.other)
    )
    if not better.keys() & other.keys():
        return PairedRow(test, None, None, None)
    measured = paired(other, better)
    interval = bootstrap_interval(list(differences(other, better).values()))
    return PairedRow(test, measured, interval, agrees(measured.difference.mean, measured.p, test.difference, test.p))
