"""How the study of tokenizers looks in a terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rankscope_cli.tables import MISSING, add_columns, figures, plain_table, print_table

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope_lab.tokenizers.study import Row, TokenizerReport

BESIDE = {
    "linear-regression": "least squares",
    "autoencoder": "principal components",
    "copy": "guessing",
    "forecast": "seasonal naive",
}
"""What a component's error stands beside."""
SHORT = {"linear-regression": "regression"}


def show_tokenizers(report: TokenizerReport, console: Console) -> None:
    """Print codebooks, then the other components beside what they are compared with."""
    console.print(report.data, style="bold", markup=False)
    coded = [row for row in report.rows if row.codes]
    if coded:
        _codebooks(coded, console)
    others = [row for row in report.rows if not row.codes]
    if others:
        _others(others, console)
    if report.diverged:
        console.print(f"{len(report.diverged)} of {len(report.runs)} runs diverged and are in no mean.", markup=False)


def _codebooks(rows: list[Row], console: Console) -> None:
    keys = list(next((row.eps_ranks for row in rows if row.eps_ranks), {}))
    table = plain_table("Codebooks: error of rebuilt test rows, use there, ε-ranks; mean of n seeds")
    add_columns(table, ["codes", "MSE", "used", "perpl.", *(f"ε={key}" for key in keys), "width", "n"])
    for row in rows:
        ranks = [f"{row.eps_ranks[key]:.1f}" if row.eps_ranks else MISSING for key in keys]
        used = f"{row.used:.0f}" if math.isfinite(row.used) else MISSING
        cells = [_error(row), used, figures(row.perplexity), *ranks, str(row.width)]
        table.add_row(row.setting, *cells, _count(row))
    print_table(table, console)
    console.print()


def _others(rows: list[Row], console: Console) -> None:
    table = plain_table("Test error, mean ± std of n seeds")
    add_columns(table, ["component", "setting", "error", "beside", "of", "n", "s"], left=2)
    for row in rows:
        name = SHORT.get(row.component, row.component)
        beside = BESIDE[row.component]
        seconds = figures(row.seconds)
        table.add_row(name, row.setting, _error(row), figures(row.reference), beside, _count(row), seconds)
    print_table(table, console)


def _error(row: Row) -> str:
    if row.error_std is None:
        return figures(row.error, 4)
    if row.error < 1e3:
        return f"{row.error:.4f} ± {row.error_std:.4f}"
    return f"{figures(row.error, 4)} ± {figures(row.error_std, 2)}"


def _count(row: Row) -> str:
    return f"{row.runs}" + (f" −{row.diverged}" if row.diverged else "")
