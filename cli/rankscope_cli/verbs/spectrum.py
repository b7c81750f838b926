"""``rankscope spectrum``: singular values, ε-ranks and size ratios of weight matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from rankscope import choices
from rankscope_cli import options as opt
from rankscope_cli.output import Output, check_figures, drawing
from rankscope_cli.progress import progress_bar
from rankscope_cli.tables import add_columns, plain_table, print_table, where, width
from rankscope_eval.numbers import ratio, significant, spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console
    from rich.table import Table

    from rankscope.measure.spectrum import SiteSpectrum, SpectrumReport

FIGURES = ("ranks_by_layer", "size_by_eps", "spectra_encoder", "spectra_decoder")
"""File stems of the figures."""


def run(
    model: opt.Model = None,
    eps: opt.Eps = None,
    sites: opt.Sites = None,
    ranks_only: Annotated[bool, opt.switch("--ranks-only", "Report only ε-ranks and sizes, without spectra.")] = False,
    figures: opt.Figures = None,
    out: opt.Out = None,
    force: opt.Force = False,
    json: opt.Json = False,
    dtype: Annotated[
        choices.Dtype | None,
        opt.dtype("Decompose in float32 or float64 (default: float32, or float64 where the weights are)."),
    ] = None,
    device: opt.Device = "auto",
    revision: opt.Revision = None,
    debug: opt.Debug = False,
) -> None:
    """Compute singular values and ε-ranks of weight matrices.

    The ε-rank is the number of singular values above ε·σ₁; per head: median (min–max). Size: parameters of a
    factorisation of that rank / parameters of the matrix. eff.: exponential of the entropy of the shares of σ².
    --out FILE.json stores all singular values. Results are deterministic.

    Examples:
        rankscope spectrum bundled-bolt
        rankscope spectrum amazon/chronos-t5-base --eps 0.1,0.01 --out base.parquet
        rankscope spectrum small/ --sites q,k,encoder --ranks-only --json
    """
    from rankscope.engine.device import resolve_dtype
    from rankscope.measure.spectrum import DEFAULT_EPS, measure_spectrum

    check_figures(figures, FIGURES, force)
    with Output(json, out, force, signed=True) as output:
        with progress_bar("opening the model") as progress:
            report = measure_spectrum(
                opt.open_model(model, revision),
                opt.numbers("eps", eps, DEFAULT_EPS),
                opt.words(sites),
                ranks_only=ranks_only,
                dtype=resolve_dtype(dtype),
                device=device,
                progress=progress,
            )
        drawn = drawing(figures, lambda: _figures(report))
        printed = report.without_sigma()
        output.deliver(printed, lambda console: show_spectrum(report, console), whole=report, also=drawn)


Cells = Callable[["SiteSpectrum", str], list[str]]


def _figures(report: SpectrumReport) -> dict[str, Figure]:
    """Draw the figures: ranks need attention matrices, the others need singular values."""
    from rankscope import plots

    drawn: dict[str, Figure] = {}
    attention = any(row.site.kind == "attention" for row in report.sites)
    if attention:
        drawn["ranks_by_layer"] = plots.ranks_by_layer(report)
    if report.ranks_only:
        return drawn
    if attention:
        drawn["size_by_eps"] = plots.size_by_eps({report.model: plots.size_of_report(report)})
    for stack in dict.fromkeys(row.site.stack for row in report.sites):
        rows = [row for row in report.sites if row.site.stack == stack]
        role = next((row for row in rows if report.is_trained(row)), rows[0]).site.role
        drawn[f"spectra_{stack}"] = plots.spectra(report, role=role, stack=stack)
    return drawn


def show_spectrum(report: SpectrumReport, console: Console) -> None:
    """Print the spectrum as one table if it fits the console, else as two (ranks; heads and sizes)."""
    keys = list(report.size_ratio)
    whole = _table(report, keys, ("rank", "heads", "size"), lambda row, key: [_rank(row, key), *_heads(row, key)])
    console.print(report.model, style="bold")
    if width(whole, console) <= console.width:
        print_table(whole, console)
    else:
        _print_fitting(console, keys, lambda part: _table(report, part, ("rank",), lambda row, key: [_rank(row, key)]))
        console.print()
        _print_fitting(console, keys, lambda part: _table(report, part, ("heads", "size"), _heads, shape=False))
    console.print()
    print_table(_by_role(report, keys), console)
    if report.untrained:
        idle = dict.fromkeys(f"{row.site.stack} {row.site.role}" for row in report.sites if not report.is_trained(row))
        console.print(
            f"never trained, not in the means: {', '.join(idle)} ({len(report.untrained)} matrices); no gradient "
            "reaches them, their ranks are those of the random start"
        )


def _print_fitting(console: Console, keys: list[str], build: Callable[[list[str]], Table]) -> None:
    """Print one table for all ε, or several tables with as many ε as fit the console."""
    count = len(keys)
    while count > 1 and width(build(keys[:count]), console) > console.width:
        count -= 1
    print_table(build(keys[:count]), console)
    if keys[count:]:
        console.print()
        _print_fitting(console, keys[count:], build)


def _table(report: SpectrumReport, keys: list[str], names: tuple[str, ...], cells: Cells, shape: bool = True) -> Table:
    """Build a table with one row per matrix and one group of columns per ε."""
    header = ["\nlayer", "\nmatrix", *(["\nshape", "\nσ₁", "\neff.", "\nstable"] if shape else [])]
    for key in keys:
        header += [f"ε={key}\n{names[0]}", *(f"\n{name}" for name in names[1:])]
    table = plain_table()
    add_columns(table, header, left=2)
    last = None
    apart = len({where(row.site.stack, row.site.layer) for row in report.sites}) < len(report.sites)
    for row in report.sites:
        layer = where(row.site.stack, row.site.layer)
        if apart and last not in (None, layer):
            table.add_section()
        groups = [cell for key in keys for cell in cells(row, key)]
        table.add_row(layer if layer != last else "", row.site.role, *(_of_site(row) if shape else []), *groups)
        last = layer
    return table


def _of_site(row: SiteSpectrum) -> list[str]:
    rows, columns = row.shape
    return [f"{rows}×{columns}", *map(significant, (row.sigma_max, row.effective_rank, row.stable_rank))]


def _rank(row: SiteSpectrum, key: str) -> str:
    return str(row.eps_ranks[key])


def _heads(row: SiteSpectrum, key: str) -> list[str]:
    ranks = row.per_head_eps_ranks.get(key)
    return [spread(ranks or ()), ratio(row.size_ratio[key], 2)]


def _by_role(report: SpectrumReport, keys: list[str]) -> Table:
    """Build a table of mean ε-ranks of trained matrices by role, with the size ratio of all sites at each ε."""
    table = plain_table(title="mean ε-rank by role")
    add_columns(table, ["matrix", "count", *(f"ε={key}" for key in keys)])
    trained = [row for row in report.sites if report.is_trained(row)]
    for role in dict.fromkeys(row.site.role for row in trained):
        same = [row for row in trained if row.site.role == role]
        means = [sum(row.eps_ranks[key] for row in same) / len(same) for key in keys]
        table.add_row(role, str(len(same)), *(f"{mean:.1f}" for mean in means))
    table.add_section()
    table.add_row("size ratio", str(len(report.sites)), *(ratio(report.size_ratio[key]) for key in keys))
    return table
