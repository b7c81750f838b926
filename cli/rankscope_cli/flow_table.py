"""How flow and embedding reports look in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankscope_cli.tables import MISSING, add_columns, figures, plain_table, print_table, where, width

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from rankscope.measure.embedding import EmbeddingReport
    from rankscope.measure.flow import FlowReport


def show_flow(report: FlowReport, console: Console) -> None:
    """Print per layer the ε-ranks of its input, and those of its weights at the first ε: one table if it fits."""
    roles = list(dict.fromkeys(role for row in report.layers for role in row.weight_eps_ranks))
    title = f"{report.model}: {report.n} series of {report.length} values, signal {report.signal}"
    console.print(title, style="bold", markup=False)
    both = _flow_table(report, inputs=True, roles=roles)
    if width(both, console) <= console.width:
        print_table(both, console)
    else:
        print_table(_flow_table(report, inputs=True, roles=[]), console)
        console.print()
        print_table(_flow_table(report, inputs=False, roles=roles), console)
    console.print()
    console.print(f"Under a role: ε-rank of that weight at ε={report.eps[0]!r} (s. self, c. cross, g. group).")


def _flow_table(report: FlowReport, inputs: bool, roles: list[str]) -> Table:
    levels = [repr(eps) for eps in report.eps]
    header = ["tokens", "σ₁", *(f"ε={level}" for level in levels), "eff."] if inputs else []
    table = plain_table()
    add_columns(table, ["layer", *header, *(_short(role) for role in roles)])
    stack = None
    for row in report.layers:
        if stack not in (None, row.stack):
            table.add_section()
        stack = row.stack
        cells = [str(row.tokens), figures(float(row.sigma[0])), *(str(row.eps_ranks[level]) for level in levels)]
        cells.append(figures(row.effective_rank))
        weights = [str(row.weight_eps_ranks[role][levels[0]]) if role in row.weight_eps_ranks else "" for role in roles]
        table.add_row(where(row.stack, row.layer), *(cells if inputs else []), *weights)
    return table


def show_embedding(report: EmbeddingReport, console: Console) -> None:
    """Print one row per embedding matrix: of embedded series, text or images, or of a vocabulary."""
    levels = [repr(eps) for eps in report.eps]
    table = plain_table()
    names = ["model", "matrix", "patch", "shape", *(f"ε={level}" for level in levels), "of max.", "eff."]
    add_columns(table, names, left=2, folds=True)
    for row in report.rows:
        ranks = [str(row.eps_ranks[level]) for level in levels]
        share = f"{row.relative_ranks[levels[0]]:.0%}" if levels else MISSING
        table.add_row(
            row.model,
            "vocab." if row.matrix == "vocabulary" else row.modality,
            str(row.patch_size),
            f"{row.tokens}×{row.d_model}",
            *ranks,
            share,
            figures(row.effective_rank),
        )
    print_table(table, console)
    console.print()
    if levels:
        console.print(f"of max.: ε-rank at ε={levels[0]} over the smaller side. Patch: numbers per token.")
    others = dict.fromkeys(row.source for row in report.rows if row.source and row.modality != "series")
    if others:
        console.print(f"Other corpora: {'; '.join(others)}.", markup=False)


def _short(role: str) -> str:
    """Short name of a role.

    >>> _short("cross.q")
    'c.q'
    """
    scope, _, letter = role.partition(".")
    return f"{scope[0]}.{letter}" if letter else role
