"""Several tables of the audit at once: which runs they need, and what they show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rankscope.errors import OptionError, unknown_choice
from rankscope_lab.encoders.cell import ENCODERS, EPOCHS, ETTH1, Cell, RunResult
from rankscope_lab.encoders.data import CellData
from rankscope_lab.encoders.findings import FINDINGS, FindingsTable, compute_findings, finding_cells
from rankscope_lab.encoders.tables import (
    PAIRED,
    TABLES,
    PairedTable,
    TableResult,
    compute_paired,
    compute_table,
    paired_cells,
    table_cells,
)
from rankscope_lab.machine import FLOAT32

if TYPE_CHECKING:
    import pandas as pd

ALL = "all"
CHOICES = (*TABLES, PAIRED, FINDINGS)
PUBLISHED_SEEDS = 20


@dataclass(frozen=True)
class Protocol:
    """What is asked for.

    Attributes:
        tables: of `CHOICES`, in their order.
        seeds: runs of every cell; a table takes no more than it was printed from.
        epochs: of every run.
        encoders: only these; none: all that the tables have.
    """

    tables: tuple[str, ...]
    seeds: int = PUBLISHED_SEEDS
    epochs: int = EPOCHS
    encoders: tuple[str, ...] | None = None

    @property
    def published(self) -> bool:
        """Whether what is asked for is as long and as much as the paper's."""
        return self.epochs == EPOCHS and self.seeds >= PUBLISHED_SEEDS

    @property
    def warning(self) -> str:
        """How it differs from the paper's protocol; empty where it does not."""
        if self.epochs != EPOCHS:
            return (
                f"Not the paper's protocol: {self.seeds} seeds × {self.epochs} epochs in place of {PUBLISHED_SEEDS} × "
                f"{EPOCHS}; verdicts say little."
            )
        if self.seeds < PUBLISHED_SEEDS:
            return f"Fewer seeds than the paper's {PUBLISHED_SEEDS}: {self.seeds}."
        return ""


def protocol(
    tables: Sequence[str], seeds: int = PUBLISHED_SEEDS, epochs: int = EPOCHS, encoders: Sequence[str] | None = None
) -> Protocol:
    """Check what is asked for.

    Args:
        tables: of `CHOICES`, or ``all``.
        seeds: at least 1.
        epochs: at least 1.
        encoders: of `ENCODERS`; none: all.

    Raises:
        OptionError: an unknown table or encoder, an empty list, or no seeds.

    >>> protocol(["13", "1"]).tables
    ('1', '13')
    """
    for name in tables:
        if name not in (*CHOICES, ALL):
            raise OptionError(unknown_choice("table", name, (*CHOICES, ALL)))
    for name in encoders or ():
        if name not in ENCODERS:
            raise OptionError(unknown_choice("encoder", name, ENCODERS))
    if not tables or (encoders is not None and not encoders):
        raise OptionError("the list of tables or encoders is empty: name one, or leave the option out.")
    if seeds < 1 or epochs < 1:
        raise OptionError(f"seeds and epochs must be at least 1, got {seeds} and {epochs}.")
    chosen = CHOICES if ALL in tables else tuple(name for name in CHOICES if name in tables)
    return Protocol(chosen, seeds, epochs, None if encoders is None else tuple(dict.fromkeys(encoders)))


def audit_cells(asked: Protocol) -> list[Cell]:
    """Runs that the tables need, each once, the common ones first.

    Raises:
        OptionError: none of the encoders asked for is in these tables.
    """
    size = (asked.seeds, asked.epochs, asked.encoders)
    cells: list[Cell] = []
    for name in asked.tables:
        if name == PAIRED:
            cells += paired_cells(*size)
        elif name == FINDINGS:
            cells += finding_cells(*size)
        else:
            cells += table_cells(TABLES[name], *size)
    if not cells:
        named = ", ".join(asked.encoders or ())
        raise OptionError(f"tables {', '.join(asked.tables)} have no row of {named}: choose other encoders or tables.")
    return list(dict.fromkeys(cells))


def needs_etth1(cells: Iterable[Cell]) -> bool:
    """Whether a run needs the table ETTh1."""
    return any(cell.data == ETTH1 for cell in cells)


@dataclass(frozen=True)
class AuditReport:
    """The tables that were asked for.

    Attributes:
        asked: the protocol.
        runs: how many results the tables are made from.
        needed: how many they need.
        diverged: results of these that are in no mean.
        cut_short: results of these that ended before their last epoch.
        rounded: results of these whose products were not in float32.
        tables: those of the paper.
        paired: the paired tests; none: not asked for.
        findings: none: not asked for.
    """

    asked: Protocol
    runs: int
    needed: int
    diverged: int
    cut_short: int
    rounded: int
    tables: tuple[TableResult, ...]
    paired: PairedTable | None
    findings: FindingsTable | None

    SCHEMA: ClassVar = "rankscope/lab-encoders@1"
    KEYS: ClassVar = ("protocol", "runs=counts", "tables", "paired", "findings")

    @property
    def published(self) -> bool:
        """Whether runs are as long, as many and as exact as the paper's."""
        return self.asked.published and not self.warning

    @property
    def warning(self) -> str:
        """What keeps the runs from being held against the paper's; empty where nothing does."""
        said = [self.asked.warning] if self.asked.warning else []
        counts = (
            (self.needed - self.runs, "missing"),
            (self.cut_short, "cut short"),
            (self.rounded, "in bfloat16"),
        )
        said += [f"{count} of {self.needed} runs: {what}." for count, what in counts if count]
        return " ".join(said)

    @property
    def protocol(self) -> dict[str, Any]:
        """How the runs were asked for, and whether that is the paper's way."""
        asked = self.asked
        size = {"seeds": asked.seeds, "epochs": asked.epochs, "encoders": asked.encoders}
        return {**size, "published": self.published, "warning": self.warning}

    @property
    def counts(self) -> dict[str, int]:
        """Results that are there and needed, and those that are not like the paper's."""
        counts = {"there": self.runs, "needed": self.needed, "diverged": self.diverged}
        return {**counts, "cut_short": self.cut_short, "rounded": self.rounded}

    def to_frame(self) -> pd.DataFrame:
        """The rows of the paper's tables, one number a row."""
        import pandas as pd

        rows = []
        for table in self.tables:
            for row in table.rows:
                printed = row.published
                rows.append(
                    {
                        "table": table.id,
                        "setting": row.setting,
                        "encoder": row.encoder,
                        "measure": row.measure,
                        "mean": row.summary.mean,
                        "std": row.summary.std,
                        "n": row.summary.n,
                        "wanted": row.wanted,
                        "diverged": row.diverged,
                        "all_mean": row.overall.mean,
                        "all_std": row.overall.std,
                        "all_n": row.overall.n,
                        "published_mean": printed.mean if printed else None,
                        "published_std": printed.std if printed else None,
                        "difference": row.difference,
                        "verdict": row.verdict,
                    }
                )
        return pd.DataFrame(rows)


def audit_report(asked: Protocol, results: Iterable[RunResult], etth1: CellData | None = None) -> AuditReport:
    """Compute the tables.

    Args:
        asked: which.
        results: runs; those that no table needs are passed over.
        etth1: its tensors, for the baselines among the findings.
    """
    runs = {result.cell: result for result in results}
    needed = audit_cells(asked)
    there = [runs[cell] for cell in needed if cell in runs]
    size = (runs, asked.seeds, asked.epochs, asked.encoders)
    return AuditReport(
        asked,
        runs=len(there),
        needed=len(needed),
        diverged=sum(run.diverged for run in there),
        cut_short=sum(run.cut for run in there),
        rounded=sum(run.precision != FLOAT32 for run in there),
        tables=tuple(compute_table(TABLES[name], *size) for name in asked.tables if name in TABLES),
        paired=compute_paired(*size) if PAIRED in asked.tables else None,
        findings=compute_findings(*size, etth1=etth1) if FINDINGS in asked.tables else None,
    )
