"""What ``rankscope compress`` prints: sizes before and after, ranks by role, and how to go on."""

from __future__ import annotations

import shlex
import statistics
from typing import TYPE_CHECKING

from rankscope_cli.tables import add_columns, plain_table, print_table, ratio_text, size

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from rankscope.compress import CompressReport, LossSearch, SiteReport


def show_compress(report: CompressReport, console: Console) -> None:
    """Print the tables of a report on a console."""
    how = report.method if report.eps is None else f"{report.method} at ε={report.eps:g}"
    table = plain_table(title=f"{report.model} → {report.out}, {how}")
    add_columns(table, ["", "before", "after", "after/before"])
    for name, counts in (
        ("selected matrices", report.selected_parameters),
        ("all parameters", report.parameters),
    ):
        before, after = counts["before"], counts["after"]
        table.add_row(name, f"{before:,}", f"{after:,}", ratio_text(after / before, 3))
    before, after = report.bytes["before"], report.bytes["after"]
    disk = "weights on disk" + (", int8" if report.storage == "int8" else "")
    table.add_row(disk, size(before), size(after), ratio_text(after / before, 3))
    print_table(table, console)
    console.print()
    print_table(_by_role(report), console)
    console.print()
    if report.search is not None:
        print_table(_steps(report.search), console)
        console.print()
    if report.family == "t5":  # no forecasts
        console.print(f"size ratio {report.ratio:.3f}. What every size costs in log-perplexity:", markup=False)
        console.print(f"  rankscope table2 {shlex.quote(report.model)} --text FILE --out table/", markup=False)
        return
    console.print(f"size ratio {report.ratio:.3f}. Verify that the forecasts held:", markup=False)
    console.print(f"  rankscope eval {shlex.quote(report.out)} --baseline {shlex.quote(report.model)}", markup=False)


def _by_role(report: CompressReport) -> Table:
    table = plain_table()
    add_columns(table, ["matrix", "count", "cut", "rank", "worst error", "size"])
    for role in dict.fromkeys(site.role for site in report.sites):
        same = [site for site in report.sites if site.role == role]
        cut = [site for site in same if site.parameters_after < site.parameters_before]
        share = sum(site.parameters_after for site in same) / sum(site.parameters_before for site in same)
        worst = max(site.relative_error for site in same)
        table.add_row(role, str(len(same)), str(len(cut)), _ranks(same), f"{worst:.4f}", ratio_text(share))
    return table


def _steps(search: LossSearch) -> Table:
    table = plain_table()
    add_columns(table, ["size ratio", search.measure, f"at most {1 + search.max_loss:g}"])
    for step in search.steps:
        table.add_row(ratio_text(step.ratio, 3), f"{step.score:.4f}", "yes" if step.holds else "no")
    return table


def _ranks(sites: list[SiteReport]) -> str:
    ranks = [width for site in sites for width in site.widths or (site.rank,)]
    low, high = min(ranks), max(ranks)
    return f"{statistics.median(ranks):g}" + ("" if low == high else f" ({low}–{high})")
