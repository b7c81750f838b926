"""How a benchmark looks in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankscope_cli.tables import MISSING, add_columns, figures, plain_table, print_table, ratio_text

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope_eval.bench import BenchReport, BenchRow
    from rankscope_eval.bench.alternate import Spread

_SHORT = {"float32": "fp32", "float64": "fp64", "bfloat16": "bf16", "float16": "fp16"}


def show_bench(report: BenchReport, console: Console) -> None:
    """Print a table per batch, what its columns say, and what failed."""
    for number, batch in enumerate(dict.fromkeys(row.batch for row in report.rows)):
        if number:
            console.print()
        rows = [row for row in report.rows if row.batch == batch]
        sizes = f"{rows[0].context} values → {rows[0].horizon} steps, {report.rounds} rounds, {_where(report, rows[0])}"
        console.print(f"batch {batch}: {sizes}", style="bold", markup=False)
        _show_batch(report, rows, console)
    base = next(one.baseline for one in report.ratios) if report.ratios else "none"
    console.print(
        f"\nms: of one forecast of the batch; MB: peak memory above the imports; ratios: to {base};\n"
        "roof: least time that the work can take at the rates of this machine / median.",
        markup=False,
    )
    for failure in report.failures:
        console.print(f"left out at batch {failure.batch}: {failure.reason}", markup=False)


def _show_batch(report: BenchReport, rows: list[BenchRow], console: Console) -> None:
    table = plain_table()
    names = ["model", "runtime", "in", "ms (min–max)", "ratio", "MB", "ratio", "tok/s", "roof"]
    add_columns(table, names, left=3, folds=True)
    over = {one.label: one for one in report.ratios if one.batch == rows[0].batch}
    for row in rows:
        ratio = over.get(row.label)
        table.add_row(
            row.model,
            row.runtime,
            _SHORT.get(row.dtype, row.dtype),
            _span(row.seconds),
            MISSING if ratio is None else ratio_text(ratio.seconds.median),
            f"{row.peak_bytes / 1e6:.0f}",
            MISSING if ratio is None else ratio_text(ratio.peak_bytes),
            _short_count(row.tokens_per_second),
            MISSING if row.achieved is None else f"{100 * row.achieved:.0f}%",
        )
    print_table(table, console)


def _span(seconds: Spread) -> str:
    """Milliseconds, or seconds where there are ten or more.

    >>> from rankscope_eval.bench.alternate import Spread
    >>> _span(Spread(0.0123, 0.0120, 0.0127)), _span(Spread(12.3, 12.0, 12.7))
    ('12.3 (12.0–12.7)', '12.3s (12.0–12.7)')
    """
    scale, unit = (1.0, "s") if seconds.median >= 10 else (1e3, "")
    median, low, high = (figures(scale * value) for value in (seconds.median, seconds.min, seconds.max))
    return f"{median}{unit} ({low}–{high})"


def _where(report: BenchReport, row: BenchRow) -> str:
    if row.device != "cpu":
        return str(report.machine["device"])
    return f"{row.threads} thread" + "s" * (row.threads > 1)


def _short_count(value: float) -> str:
    """Three digits and a unit.

    >>> _short_count(987.0), _short_count(12_345), _short_count(2_500_000)
    ('987', '12.3k', '2.50M')
    """
    for unit, scale in (("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{figures(value / scale)}{unit}"
    return figures(value)
