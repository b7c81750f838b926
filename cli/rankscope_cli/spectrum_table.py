"""How a spectrum report looks in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankscope_cli.tables import add_columns, figures, plain_table, ratio_text, spread, where

if TYPE_CHECKING:
    from rankscope.analysis.spectrum import SiteSpectrum, SpectrumReport
    from rich.console import Console
    from rich.table import Table

_SITE = ("layer", "matrix")


def show_spectrum(report: SpectrumReport, console: Console) -> None:
    """Print the spectrum table: one where it fits the console's width, else two with the same rows."""
    keys = [eps_key(eps) for eps in report.eps]
    whole = _table(report, keys, shape=True, ranks=True, heads=True)
    whole.title = report.model
    if console.measure(whole).maximum <= console.width:
        console.print(whole)
    else:
        first = _table(report, keys, shape=True, ranks=True, heads=False)
        first.title = report.model
        console.print(first)
        console.print()
        console.print(_table(report, keys, shape=False, ranks=False, heads=True))
    console.print()
    console.print(_by_role(report, keys))


def eps_key(eps: float) -> str:
    """The key under which a report holds what belongs to ε."""
    return repr(float(eps))


def _table(report: SpectrumReport, keys: list[str], *, shape: bool, ranks: bool, heads: bool) -> Table:
    names = list(_SITE)
    names += ["shape", "σ₁", "eff.", "stable"] if shape else []
    for key in keys:
        names += [f"ε={key}"] if ranks else []
        names += [f"heads {key}", f"size {key}"] if heads else []
    table = plain_table()
    add_columns(table, names, left=len(_SITE))
    last = None
    for row in report.sites:
        layer = where(row.site.stack, row.site.layer)
        if last not in (None, layer):
            table.add_section()
        table.add_row(layer if layer != last else "", *_cells(row, keys, shape, ranks, heads))
        last = layer
    return table


def _cells(row: SiteSpectrum, keys: list[str], shape: bool, ranks: bool, heads: bool) -> list[str]:
    cells = [row.site.role]
    if shape:
        rows, columns = row.shape
        cells += [f"{rows}×{columns}", figures(row.sigma_max), figures(row.effective_rank), figures(row.stable_rank)]
    for key in keys:
        cells += [str(row.eps_ranks[key])] if ranks else []
        cells += [spread((row.per_head_eps_ranks or {}).get(key)), ratio_text(row.size_ratio[key])] if heads else []
    return cells


def _by_role(report: SpectrumReport, keys: list[str]) -> Table:
    """Mean ε-rank of every role, and what factoring all sites at ε would store."""
    table = plain_table(title="mean ε-rank by role")
    add_columns(table, ["matrix", "count", *(f"ε={key}" for key in keys)])
    roles = dict.fromkeys(row.site.role for row in report.sites)
    for role in roles:
        same = [row for row in report.sites if row.site.role == role]
        means = [sum(row.eps_ranks[key] for row in same) / len(same) for key in keys]
        table.add_row(role, str(len(same)), *(f"{mean:.1f}" for mean in means))
    table.add_section()
    table.add_row("size ratio", str(len(report.sites)), *(ratio_text(report.size_ratio[key]) for key in keys))
    return table
