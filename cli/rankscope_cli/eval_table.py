"""How an evaluation looks in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankscope_cli.tables import MISSING, add_columns, figures, plain_table, ratio_text

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope_eval import EvalReport
    from rankscope_eval.report import EvalRow


def show_eval(report: EvalReport, console: Console) -> None:
    """Print the scores of every data set and model, the relative scores, and what was left out."""
    _show_rows(report, console)
    console.print()
    _show_summary(report, console)
    for skipped in report.skipped:
        console.print(f"skipped {skipped.benchmark}/{skipped.dataset}: {skipped.reason}", markup=False)
    for row in report.rows:
        if row.fallbacks:
            console.print(
                f"{row.model} could not be fitted in {row.fallbacks} of {row.windows} windows of {row.dataset}: "
                "seasonal-naive stands in.",
                markup=False,
            )


def _show_rows(report: EvalReport, console: Console) -> None:
    cut = f", first {report.max_series} series of each" if report.max_series else ""
    table = plain_table(title=f"suite {report.suite}{cut}, seed {report.seed}")
    published = any(row.published_MASE is not None for row in report.rows)
    names = ["data set", "model", "series", "horizon", "MASE", "WQL", *(["pub. MASE", "pub. WQL"] if published else [])]
    add_columns(table, [*names, "seconds"], left=2)
    last: EvalRow | None = None
    for row in report.rows:
        same = last is not None and (last.benchmark, last.dataset) == (row.benchmark, row.dataset)
        if last is not None and not same:
            table.add_section()
        extra = [_published(row.published_MASE), _published(row.published_WQL)] if published else []
        table.add_row(
            "" if same else row.dataset,
            row.model,
            "" if same else str(row.series),
            "" if same else str(row.prediction_length),
            f"{row.MASE:.4f}",
            f"{row.WQL:.4f}",
            *extra,
            figures(row.seconds, 2),
        )
        last = row
    console.print(table, markup=False)


def _show_summary(report: EvalReport, console: Console) -> None:
    table = plain_table(title=f"relative to {report.baseline}: geometric means, lower is better")
    add_columns(table, ["benchmark", "model", "data sets", "rel. MASE", "rel. WQL"], left=2)
    for row in report.summary:
        table.add_row(
            row.benchmark,
            row.model,
            str(row.datasets),
            ratio_text(row.relative_MASE, 3),
            ratio_text(row.relative_WQL, 3),
        )
    console.print(table, markup=False)
    for row in report.summary:
        if row.left_out:
            names = ", ".join(row.left_out)
            console.print(f"left out of {row.model} on {row.benchmark}: {names} (no usable ratio).", markup=False)


def _published(value: float | None) -> str:
    return MISSING if value is None else f"{value:.4f}"
