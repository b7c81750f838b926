"""Audit report: required runs and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rankscope.errors import OptionError, unknown_choice
from rankscope_lab.encoders.data import RunData
from rankscope_lab.encoders.findings import FINDINGS, FindingsTable, compute_findings, finding_runs
from rankscope_lab.encoders.run_spec import ENCODERS, EPOCHS, ETTH1, RunResult, RunSpec
from rankscope_lab.encoders.tables.compute import (
    PAIRED,
    PairedTable,
    adjust,
    compute_paired,
    compute_table,
    paired_runs,
    table_runs,
)
from rankscope_lab.encoders.tables.paper import TABLES
from rankscope_lab.encoders.tables.spec import PUBLISHED_SEEDS, Protocol, Row, TableResult
from rankscope_lab.machine import FLOAT32

if TYPE_CHECKING:
    import pandas as pd

ALL = "all"
CHOICES = (*TABLES, PAIRED, FINDINGS)


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
    return Protocol(seeds, epochs, None if encoders is None else tuple(dict.fromkeys(encoders)), chosen)


def audit_runs(asked: Protocol) -> list[RunSpec]:
    """Runs that the tables need, each once, the common ones first.

    Raises:
        OptionError: none of the encoders asked for is in these tables.
    """
    specs: list[RunSpec] = []
    for name in asked.tables:
        if name == PAIRED:
            specs += paired_runs(asked)
        elif name == FINDINGS:
            specs += finding_runs(asked)
        else:
            specs += table_runs(TABLES[name], asked)
    if not specs:
        named = ", ".join(asked.encoders or ())
        raise OptionError(f"tables {', '.join(asked.tables)} have no row of {named}: choose other encoders or tables.")
    return list(dict.fromkeys(specs))


def needs_etth1(specs: Iterable[RunSpec]) -> bool:
    """Return True if a run needs the table ETTh1."""
    return any(spec.data == ETTH1 for spec in specs)


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
        """True if runs are as long, as many and as exact as the paper's."""
        return self.asked.published and not self.warning

    @property
    def warning(self) -> str:
        """Reasons not to hold the runs against the paper's; empty where there is none."""
        said = [self.asked.warning] if self.asked.warning else []
        counts = (
            (self.needed - self.runs, "missing"),
            (self.cut_short, "cut short"),
            (self.rounded, "in bfloat16"),
        )
        said += [f"{count} of {self.needed} runs: {what}." for count, what in counts if count]
        return " ".join(said)

    @property
    def counted(self) -> tuple[Row, ...]:
        """Judged numbers without constants and repeats."""
        return tuple(row for table in self.tables for row in table.rows if row.counted)

    @property
    def protocol(self) -> dict[str, Any]:
        """Size of the runs asked for, and whether it is the paper's."""
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
                        "welch_p": row.p,
                        "holm_p": row.adjusted,
                        "counted": row.counted,
                    }
                )
        return pd.DataFrame(rows)


def audit_report(asked: Protocol, results: Iterable[RunResult], etth1: RunData | None = None) -> AuditReport:
    """Compute the tables.

    Args:
        asked: which.
        results: runs; those that no table needs are passed over.
        etth1: its tensors, for the baselines among the findings.
    """
    runs = {result.spec: result for result in results}
    needed = audit_runs(asked)
    there = [runs[spec] for spec in needed if spec in runs]
    return AuditReport(
        asked,
        runs=len(there),
        needed=len(needed),
        diverged=sum(run.diverged for run in there),
        cut_short=sum(run.cut for run in there),
        rounded=sum(run.precision != FLOAT32 for run in there),
        tables=adjust([compute_table(TABLES[name], runs, asked) for name in asked.tables if name in TABLES]),
        paired=compute_paired(runs, asked) if PAIRED in asked.tables else None,
        findings=compute_findings(runs, asked, etth1) if FINDINGS in asked.tables else None,
    )
