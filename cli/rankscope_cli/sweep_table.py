"""How a sweep looks in a terminal, before it runs and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankscope_cli.tables import MISSING, add_columns, figures, plain_table, print_table

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope.measure.sweep import SweepReport, SweepRow
    from rankscope.train.sweeps import SweepPlan

_SCORES = ("relative_WQL", "relative_MASE")


def show_plan(plan: SweepPlan, console: Console) -> None:
    """Print the points of a sweep that has not run."""
    table = plain_table(title=f"{plan.name}: {plan.about}" if plan.about else plan.name)
    add_columns(table, ["point", "changes", "parameters", "steps", "steps left", "state"], left=2)
    for point in plan.points:
        changes = ", ".join(f"{name} {value}" for name, value in point.fields.items()) or MISSING
        numbers = [f"{point.parameters:,}", f"{point.steps:,}", f"{point.steps_left:,}"]
        table.add_row(point.point, changes, *numbers, point.state)
    print_table(table, console)
    left = sum(point.steps_left for point in plan.points)
    console.print(f"{len(plan.points)} points, {left:,} steps left", markup=False)


def show_sweep(report: SweepReport, console: Console) -> None:
    """Print one line per point: size, loss, mean ε-ranks of W_Q and of its heads, scores."""
    keys = [repr(float(eps)) for eps in report.eps]
    scores = [name for name in _SCORES if any(name in row.scores for row in report.points)]
    table = plain_table(
        title=f"{report.name}: {report.about}" if report.about else report.name,
        caption="Mean ε-rank of W_Q over all layers; heads: of one head's rows at the first ε.",
    )
    ranks = [f"ε={key}" for key in keys]
    header = ["point", "state", "parameters", "steps", "loss", *ranks, "heads", "embed."]
    add_columns(table, [*header, *(name.replace("relative_", "rel. ") for name in scores)], left=2)
    for row in report.points:
        size = f"{row.parameters:,}" if row.parameters else MISSING
        steps = f"{row.steps:,}" if row.steps else MISSING
        cells = [figures(row.scores.get(name)) for name in scores]
        table.add_row(row.point, row.state, size, steps, figures(row.loss), *_ranks(row, keys), *cells)
    print_table(table, console)


def _ranks(row: SweepRow, keys: list[str]) -> list[str]:
    if row.ranks is None:
        return [MISSING] * (len(keys) + 2)
    from rankscope.measure.sweep import ALL, mean_head_rank

    means: dict[str, Any] = row.ranks.mean_ranks[ALL]
    cells = [f"{means[key]:.1f}" if key in means else MISSING for key in keys]
    if keys[0] not in means:
        return [*cells, MISSING, MISSING]
    return [*cells, f"{mean_head_rank(row.ranks, keys[0]):.1f}", str(row.ranks.embeddings[-1].eps_ranks[keys[0]])]
