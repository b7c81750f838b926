"""Tables and warnings of a compression."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from rankscope_cli.exits import say
from rankscope_cli.tables import add_columns, plain_table, print_table
from rankscope_eval.numbers import MISSING, ratio, size, spread

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from rankscope.compress import CompressReport, LossSearch, Recipe, SiteReport

_SUGGESTED = 0.3
"""Ratio that is named beside the size that an ε left."""


def show_compress(report: CompressReport, console: Console) -> None:
    """Print the report."""
    cut = report.method if report.eps is None else f"{report.method} at ε={report.eps:g}"
    how = "other number formats" if report.recast else cut
    table = plain_table(title=f"{report.model} → {report.out}, {how}")
    add_columns(table, ["", "before", "after", "after/before"])
    sizes = {"selected matrices": report.selected_parameters, "all parameters": report.parameters}
    if report.selected_parameters == report.parameters or report.recast:
        del sizes["selected matrices"]
    for name, counts in sizes.items():
        before, after = counts["before"], counts["after"]
        table.add_row(name, f"{before:,}", f"{after:,}", ratio(after / before))
    before, after = report.bytes["before"], report.bytes["after"]
    disk = "weights on disk" + (", int8" if report.storage == "int8" else "")
    table.add_row(disk, size(before), size(after), ratio(after / before))
    print_table(table, console)
    console.print()
    if report.method == "depth":
        print_table(_removed(report), console)
        console.print()
    elif not report.recast:
        print_table(_by_role(report), console)
        error = (
            "‖W − W̃‖₂ / ‖W‖₂"
            if report.method == "svd"
            else "largest term that was cut / largest of all, as the method weighs them"
        )
        console.print(
            f"cut: matrices made smaller; kept: rank or width; worst error: {error}; size: parameters after / before\n"
        )
    if report.search is not None:
        print_table(_steps(report.search), console)
        console.print()
    from rankscope.families import FAMILIES

    if not FAMILIES[report.family].forecastable:
        console.print(f"{report.ratio:.3f} of all parameters. To measure log-perplexity across sizes:")
        console.print(f"  rankscope table2 {shlex.quote(report.model)} --text FILE --out table/")
        return
    before, after = report.parameters["before"], report.parameters["after"]
    if "eps" in report.asked and after > before * _SUGGESTED:
        console.print(
            f"--eps left {after:,} of {before:,} parameters; --ratio {_SUGGESTED:g} would cut the whole model to "
            f"{int(before * _SUGGESTED):,} by narrower heads, feed-forward blocks and streams."
        )
    where = "" if report.search is None else " on data that the search has not seen"
    console.print(f"{report.ratio:.3f} of all parameters. To evaluate forecast accuracy{where}:")
    console.print(f"  rankscope eval {shlex.quote(report.out)} --baseline {shlex.quote(report.model)}")


def _by_role(report: CompressReport) -> Table:
    table = plain_table()
    add_columns(table, ["matrix", "count", "cut", "kept", "worst error", "size"])
    for role in dict.fromkeys(site.role for site in report.sites):
        same = [site for site in report.sites if site.role == role]
        cut = [site for site in same if site.parameters_after < site.parameters_before]
        share = sum(site.parameters_after for site in same) / sum(site.parameters_before for site in same)
        worst = max(site.relative_error for site in same)
        # what a stream's width leaves is counted in the matrices that read and write it
        left = MISSING if role == "stream" else ratio(share, 2)
        table.add_row(role, str(len(same)), str(len(cut)), _ranks(same), f"{worst:.4f}", left)
    return table


def _removed(report: CompressReport) -> Table:
    """Layers in the order in which they left."""
    table = plain_table()
    add_columns(table, ["removed", "parameters", "loss added"])
    gone = sorted((site for site in report.sites if site.removed), key=lambda site: site.removed or 0)
    for site in gone:
        table.add_row(f"{site.stack} {site.layer}", f"{site.parameters_before:,}", f"{site.lost:.4f}")
    return table


def _steps(search: LossSearch) -> Table:
    table = plain_table()
    bounded = any(step.upper is not None for step in search.steps)
    bound = ["95 % bound"] if bounded else []
    add_columns(table, ["of all parameters", search.measure, *bound, f"at most {1 + search.max_loss:g}"])
    for step in search.steps:
        upper = [MISSING if step.upper is None else f"{step.upper:.4f}"] if bounded else []
        table.add_row(ratio(step.ratio), f"{step.score:.4f}", *upper, "yes" if step.holds else "no")
    return table


def _ranks(sites: list[SiteReport]) -> str:
    return spread([width for site in sites for width in site.widths or (site.rank,)])


def warn_elsewhere(recipe: Recipe | None, device: str) -> None:
    """Warn where a recipe's times were measured on another machine."""
    if recipe is None or recipe.sought is None or recipe.sought.conditions is None:
        return
    from rankscope_eval.bench.clock import here

    known, now = recipe.sought.conditions, here(device)
    if any(known.get(name) != value for name, value in now.items()):
        was, this = (", ".join(f"{one.get(name) or '?'}" for name in now) for one in (known, now))
        say(
            f"warning: the recipe's times were measured on another machine ({was}), not on this one ({this}): the "
            f"model is the same, its time may not be; for this machine search with --latency {recipe.sought.most:g}."
        )
