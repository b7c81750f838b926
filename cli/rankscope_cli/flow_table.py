"""How flow and embedding reports look in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankscope_cli.tables import add_columns, figures, plain_table, where

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope.analysis.embedding import EmbeddingReport
    from rankscope.analysis.flow import FlowReport


def show_flow(report: FlowReport, console: Console) -> None:
    """Print per layer the ε-ranks of its input, and of its queries, keys, values and outputs at the largest ε."""
    levels = [repr(eps) for eps in report.eps]
    shown = levels[0]
    roles = list(dict.fromkeys(role for row in report.layers for role in row.weight_eps_ranks))
    table = plain_table(title=f"{report.model}, {report.n} × {report.length} of signal {report.signal}")
    inputs = [f"ε={level}" if level == shown else level for level in levels]
    add_columns(table, ["layer", "tokens", "σ₁", *inputs, "eff.", *(_short(role, shown) for role in roles)])
    stack = None
    for row in report.layers:
        if stack not in (None, row.stack):
            table.add_section()
        stack = row.stack
        weights = [str(row.weight_eps_ranks[role][shown]) if role in row.weight_eps_ranks else "" for role in roles]
        table.add_row(
            where(row.stack, row.layer),
            str(row.tokens),
            figures(float(row.sigma[0])),
            *(str(row.eps_ranks[level]) for level in levels),
            figures(row.effective_rank),
            *weights,
        )
    console.print(table)
    console.print(
        f"Left of eff.: ε-ranks of the layer's input; right: of its weights at ε={shown} (s. self, c. cross, g. group)."
    )


def show_embedding(report: EmbeddingReport, console: Console) -> None:
    """Print one row per embedding matrix."""
    levels = [repr(eps) for eps in report.eps]
    table = plain_table(title=f"{report.n} × {report.length} of signal {report.signal}")
    names = ["model", "matrix", "patch", "tokens", "width", "σ₁", *(f"ε={level}" for level in levels), "eff.", "stable"]
    add_columns(table, names, left=2)
    for row in report.rows:
        table.add_row(
            row.model,
            row.matrix,
            str(row.patch_size),
            str(row.tokens),
            str(row.d_model),
            figures(float(row.sigma[0])),
            *(str(row.eps_ranks[level]) for level in levels),
            figures(row.effective_rank),
            figures(row.stable_rank),
        )
    console.print(table)


def _short(role: str, level: str) -> str:
    scope, _, letter = role.partition(".")
    return f"{scope[0]}.{letter}" if letter else role
