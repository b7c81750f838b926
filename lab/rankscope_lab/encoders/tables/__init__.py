"""The tables of the audit, computed from runs and printed beside the published numbers."""

from rankscope_lab.encoders.tables.catalogue import SETTINGS, TABLES
from rankscope_lab.encoders.tables.compute import compute_table, table_cells
from rankscope_lab.encoders.tables.paired import PAIRED, PairedRow, PairedTable, compute_paired, paired_cells
from rankscope_lab.encoders.tables.record import Check, Row, Runs, TableResult, TableSpec

__all__ = [
    "PAIRED",
    "SETTINGS",
    "TABLES",
    "Check",
    "PairedRow",
    "PairedTable",
    "Row",
    "Runs",
    "TableResult",
    "TableSpec",
    "compute_paired",
    "compute_table",
    "paired_cells",
    "table_cells",
]
