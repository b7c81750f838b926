"""``rankscope compress``: a smaller checkpoint, and the command that verifies it."""

from __future__ import annotations

import shlex
import statistics
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope.errors import OptionError
from rankscope_cli.exits import say
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
    out_folder,
    refuse_cuda,
    words,
)
from rankscope_cli.output import Output
from rankscope_cli.progress import progress_bar
from rankscope_cli.tables import add_columns, plain_table, print_table, ratio_text, size

METHODS = ("svd", "whitened", "joint", "theorem3", "asvd", "random")
ALLOCATIONS = ("uniform-eps", "uniform-ratio", "energy", "sensitivity", "schedule")

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
    out: Annotated[str, out_folder("Folder of the new checkpoint.")],
    parameters: Annotated[
        str | None, typer.Option("--parameters", metavar="N", help="Instead: at most N parameters in the whole model.")
    ] = None,
    size_bytes: Annotated[
        str | None, typer.Option("--bytes", metavar="N", help="Instead: at most N bytes of weights.")
    ] = None,
    cache_bytes: Annotated[
        str | None,
        typer.Option("--cache-bytes", metavar="N", help="Instead: at most N bytes of cache for a series and a path."),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            "--method",
            "-m",
            metavar="|".join(METHODS),
            help="How factors are found; all but svd and random look at series.",
        ),
    ] = "svd",
    allocation: Annotated[
        str | None,
        typer.Option(
            "--allocation",
            metavar="|".join(ALLOCATIONS),
            help="Which matrix gets which rank; by default uniform-eps for svd, else energy.",
        ),
    ] = None,
    calibration: Annotated[
        str | None,
        typer.Option(
            "--calibration",
            "-c",
            metavar="SET|FILE",
            help="Series to look at: mixture:N, kernelsynth:N, a file, several with commas, or saved moments.",
        ),
    ] = None,
    multiple: Annotated[
        int, typer.Option("--multiple", min=1, metavar="N", help="Round ranks down to multiples of N.")
    ] = 1,
    sites: Sites = None,
    force: Force = False,
    json: Json = False,
    dtype: Dtype = None,
    device: Device = "auto",
    revision: Revision = None,
    seed: Seed = 0,
    debug: Debug = False,
) -> None:
    """Write a smaller checkpoint, and the command that verifies it.

    A matrix is stored as two thin ones where that takes fewer numbers; --method joint narrows whole heads instead,
    which shrinks the key/value cache too and holds forecasts at the smallest sizes. The folder loads in
    chronos-forecasting after `import rankscope`. --dtype is the format the weights are stored in; each keeps its own
    without it.

    Examples:
        rankscope compress --eps 0.05 --out small/
        rankscope compress --ratio 0.15 --method joint --out small/
        rankscope compress amazon/chronos-t5-base -r 0.1 -m joint -c mine.parquet --sites q,k --out small/ --force
    """
    from rankscope.atomic import refuse_existing
    from rankscope.checkpoints import open_checkpoint
    from rankscope.compress import Budget, compress
    from rankscope.placement import resolve_device

    if method in ("svd", "random"):
        refuse_cuda(device, "matrices are decomposed by LAPACK")
    refuse_existing(out, force)
    limits = {"parameters": parameters, "bytes": size_bytes, "cache-bytes": cache_bytes}
    budgets = [Budget(kind, number(kind, limit)) for kind, limit in limits.items() if limit is not None]
    if len(budgets) > 1:
        raise OptionError(f"give one budget, not --{budgets[0].kind} and --{budgets[1].kind}.")
    with Output(json) as output:
        with progress_bar("opening the model") as progress:
            report = compress(
                open_checkpoint(model, revision=revision),
                out=out,
                eps=None if eps is None else number("eps", eps),
                ratio=None if ratio is None else number("ratio", ratio),
                budget=budgets[0] if budgets else None,
                sites=words(sites) or ("attention",),
                method=method,
                allocation=allocation,
                calibration=calibration,
                multiple=multiple,
                seed=seed,
                device=resolve_device(device),
                force=force,
                dtype=dtype,
                progress=progress,
            )
        output.deliver(report, lambda console: _show(report, console))
    for note in report.notes:
        say(f"warning: {note}")


def _show(report: CompressReport, console: Console) -> None:
    """Print sizes before and after, ranks by role, and how to go on."""
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
    table.add_row("weights on disk", size(before), size(after), ratio_text(after / before, 3))
    print_table(table, console)
    console.print()
    print_table(_by_role(report), console)
    console.print()
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


def _ranks(sites: list[SiteReport]) -> str:
    ranks = [width for site in sites for width in site.widths or (site.rank,)]
    low, high = min(ranks), max(ranks)
    return f"{statistics.median(ranks):g}" + ("" if low == high else f" ({low}–{high})")
