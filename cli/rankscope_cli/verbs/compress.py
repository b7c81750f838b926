"""``rankscope compress``: a smaller checkpoint, and the command that verifies it."""

from __future__ import annotations

import shlex
import statistics
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope_cli.options import (
    Debug,
    Device,
    Dtype,
    Force,
    Json,
    Model,
    Revision,
    Seed,
    Sites,
    number,
    refuse_cuda,
    words,
)
from rankscope_cli.output import Output
from rankscope_cli.progress import progress_bar
from rankscope_cli.tables import add_columns, plain_table, print_table, ratio_text, size

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from rankscope.compress import CompressReport, SiteReport


def run(
    model: Model = None,
    *,
    eps: Annotated[
        str | None, typer.Option("--eps", "-e", metavar="E", help="Keep the singular values above ε·σ₁; ε in [0, 1).")
    ] = None,
    ratio: Annotated[
        str | None,
        typer.Option(
            "--ratio", "-r", metavar="R", help="Find the ε that shrinks the matrices to this share, in (0, 1]."
        ),
    ] = None,
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="DIR", help="Folder of the new checkpoint.", rich_help_panel="Output")
    ],
    method: Annotated[str, typer.Option("--method", metavar="svd", help="How factors are found.")] = "svd",
    sites: Sites = None,
    force: Force = False,
    json: Json = False,
    dtype: Dtype = None,
    device: Device = "auto",
    revision: Revision = None,
    seed: Seed = 0,
    debug: Debug = False,
) -> None:
    """Write a smaller checkpoint by truncated SVD, and the command that verifies it.

    A matrix is stored as two thin ones where that takes fewer numbers. The folder loads in chronos-forecasting after
    `import rankscope`. --dtype is the format the weights are stored in; each keeps its own without it.

    Examples:
        rankscope compress --eps 0.05 --out small/
        rankscope compress amazon/chronos-t5-base --ratio 0.4 --out small/
        rankscope compress bundled-bolt --eps 0.1 --sites q,k --out small/ --force
    """
    from rankscope.atomic import refuse_existing
    from rankscope.checkpoints import open_checkpoint
    from rankscope.compress import compress

    refuse_cuda(device, "matrices are decomposed by LAPACK")
    refuse_existing(out, force)
    with Output(json) as output:
        with progress_bar("opening the model") as progress:
            report = compress(
                open_checkpoint(model, revision=revision),
                out=out,
                eps=None if eps is None else number("eps", eps),
                ratio=None if ratio is None else number("ratio", ratio),
                sites=words(sites) or ("attention",),
                method=method,
                force=force,
                dtype=dtype,
                progress=progress,
            )
        output.deliver(report, lambda console: _show(report, console))


def _show(report: CompressReport, console: Console) -> None:
    """Print sizes before and after, ranks by role, and how to go on."""
    table = plain_table(title=f"{report.model} → {report.out} at ε={report.eps:g}")
    add_columns(table, ["", "before", "after", "after/before"])
    for name, counts in (
        ("selected matrices", report.selected_parameters),
        ("all parameters", report.parameters),
    ):
        before, after = counts["before"], counts["after"]
        table.add_row(name, f"{before:,}", f"{after:,}", ratio_text(after / before, 3))
    before, after = report.bytes["before"], report.bytes["after"]
    table.add_row("weights on disk", size(before), size(after), ratio_text(after / before, 3))
    print_table(table, console)
    console.print()
    print_table(_by_role(report), console)
    console.print()
    console.print(f"size ratio {report.ratio:.3f}. Verify that the forecasts held:", markup=False)
    console.print(f"  rankscope eval {shlex.quote(report.out)} --baseline {shlex.quote(report.model)}", markup=False)


def _by_role(report: CompressReport) -> Table:
    table = plain_table()
    add_columns(table, ["matrix", "count", "factored", "rank", "worst error", "size"])
    for role in dict.fromkeys(site.role for site in report.sites):
        same = [site for site in report.sites if site.role == role]
        factored = [site for site in same if site.layout == "factored"]
        share = sum(site.parameters_after for site in same) / sum(site.parameters_before for site in same)
        worst = max(site.relative_error for site in same)
        table.add_row(role, str(len(same)), str(len(factored)), _ranks(same), f"{worst:.4f}", ratio_text(share))
    return table


def _ranks(sites: list[SiteReport]) -> str:
    ranks = [site.rank for site in sites]
    low, high = min(ranks), max(ranks)
    return f"{statistics.median(ranks):g}" + ("" if low == high else f" ({low}–{high})")
