"""How an evaluation looks in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankscope_cli.tables import MISSING, add_columns, plain_table, print_table, ratio_text

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
    console.print(f"suite {report.suite}{cut}, seed {report.seed}", style="bold", markup=False)
    # The published scores are of all series.
    published = not cut and any(row.published_MASE is not None for row in report.rows)
    table = plain_table()
    sizes = ["MASE", "WQL", "published", "WQL"] if published else ["series", "steps", "MASE", "WQL", "seconds"]
    add_columns(table, ["model", "data set", *sizes], left=2, folds=True)
    last: EvalRow | None = None
    for row in report.rows:
        same = last is not None and (last.benchmark, last.dataset) == (row.benchmark, row.dataset)
        if last is not None and not same:
            table.add_section()
        scores = [f"{row.MASE:.4f}", f"{row.WQL:.4f}"]
        if published:
            cells = [*scores, _published(row.published_MASE), _published(row.published_WQL)]
        else:
            steps = ["", ""] if same else [str(row.series), str(row.prediction_length)]
            cells = [*steps, *scores, f"{row.seconds:.2f}"]
        table.add_row(row.model, "" if same else row.dataset, *cells)
        last = row
    print_table(table, console)


def _show_summary(report: EvalReport, console: Console) -> None:
    from rankscope_eval.intervals import FEWEST

    console.print(f"relative to {report.baseline}: geometric means, lower is better", style="bold", markup=False)
    table = plain_table()
    add_columns(table, ["model", "benchmark", "sets", "MASE", "95 %", "WQL", "95 %"], left=2, folds=True)
    for row in report.summary:
        mase = [ratio_text(row.relative_MASE, 3), _interval(row.MASE_interval)]
        wql = [ratio_text(row.relative_WQL, 3), _interval(row.WQL_interval)]
        table.add_row(row.model, row.benchmark, str(row.datasets), *mase, *wql)
    print_table(table, console)
    if any(row.MASE_interval or row.WQL_interval for row in report.summary):
        console.print("95 %: bootstrap over data sets and series; with 1 inside, no clear difference", markup=False)
    if any(row.WQL_interval is None and 0 < row.datasets < FEWEST for row in report.summary):
        console.print(f"–: an interval needs {FEWEST} data sets, or {FEWEST} series of a single one", markup=False)
    for row in report.summary:
        if row.left_out:
            names = ", ".join(row.left_out)
            console.print(f"left out of {row.model} on {row.benchmark}: {names} (no usable ratio).", markup=False)


def _interval(ends: tuple[float, float] | None) -> str:
    return MISSING if ends is None else f"{ends[0]:.3f}–{ends[1]:.3f}"


def _published(value: float | None) -> str:
    return MISSING if value is None else f"{value:.4f}"
