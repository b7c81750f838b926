"""How a table 2 looks in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankscope_cli.tables import MISSING, add_columns, plain_table, print_table, ratio_text

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope.measure.table2 import Measures, Table2Report, Table2Row

_COLUMNS = {
    "relative_WQL": "rel. WQL",
    "relative_LPPL": "rel. LPPL",
    "relative_MASE": "MASE",
    "overlap": "overlap",
    "quantile_distance": "distance",
    "time_ratio": "time",
}
_SPREAD = ("relative_WQL", "relative_LPPL")


def show_table2(report: Table2Report, console: Console) -> None:
    """Print one line per ratio, method and allocation, and why points are missing."""
    shown = [name for name in _COLUMNS if any(getattr(row.median, name) is not None for row in report.rows)]
    console.print(f"{report.model}: relative to the original, medians over seeds (min–max)", style="bold", markup=False)
    table = plain_table()
    add_columns(table, ["method", "allocation", "size", *(_COLUMNS[name] for name in shown)], left=2)
    last: Table2Row | None = None
    for row in report.rows:
        if last is None or last.ratio != row.ratio:
            table.add_section()
            table.add_row(f"ratio {row.ratio:g}")
        cells = [_cell(row, name) for name in shown]
        method = row.method if row.heal_steps is None else f"{row.method} {row.heal_steps}"
        table.add_row(f"  {method}", row.allocation, ratio_text(row.median.reached, 3), *cells)
        last = row
    print_table(table, console)
    if any(row.heal_steps for row in report.rows):
        console.print("+healed N: trained for N steps after the cut, to answer as the original does", markup=False)
    for reason in dict.fromkeys(f"{row.method} at {row.ratio:g}: {row.reason}" for row in report.rows if row.reason):
        console.print(reason, markup=False)


def _cell(row: Table2Row, name: str) -> str:
    middle = _text(row.median, name)
    if name not in _SPREAD or middle == MISSING:
        return middle
    low, high = _text(row.low, name), _text(row.high, name)
    return middle if low == high else f"{middle} ({low}–{high})"


def _text(measures: Measures, name: str) -> str:
    value = getattr(measures, name)
    return ratio_text(value, 2 if name == "time_ratio" or (value is not None and value >= 10) else 3)
