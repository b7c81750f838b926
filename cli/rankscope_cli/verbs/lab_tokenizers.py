"""``rankscope lab tokenizers``: linear regression, autoencoders, VQ tokenizers, a transformer, on a table."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope.errors import OptionError
from rankscope_cli import options as opt
from rankscope_cli.exits import say
from rankscope_cli.output import Output, write_tables
from rankscope_cli.progress import GOES_ON, progress_lines
from rankscope_cli.tables import MISSING, add_columns, figures, plain_table, print_table

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope_lab.data.table import VariableTable
    from rankscope_lab.tokenizers.run_spec import Plan
    from rankscope_lab.tokenizers.study import Row, TokenizerReport


REPORT = "tokenizers"


def run(
    components: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMPONENT",
            help="linear-regression, autoencoder, vq, copy, forecast; all by default.",
            show_default=False,
        ),
    ] = None,
    *,
    data: Annotated[str, opt.value("--data", "FILE", "CSV with a column date and one per variable, e.g. ETTh1.csv.")],
    out: Annotated[str, opt.out_folder("Folder of the runs, new or begun.")],
    columns: Annotated[list[str] | None, opt.value("--columns", "NAME,…", "Variables; all by default.")] = None,
    codes: Annotated[
        list[str] | None, opt.value("--codes", "N,…", "Sizes of codebooks; 64,256,1024 by default.")
    ] = None,
    updates: Annotated[
        list[str] | None, opt.value("--updates", "NAME,…", "How codes learn: ema revived loss; all by default.")
    ] = None,
    seeds: opt.Seeds = None,
    epochs: Annotated[int | None, opt.count("--epochs", "Of every run, in place of its own number.")] = None,
    lookback: Annotated[int, opt.count("--lookback", "Steps a forecaster reads.")] = 96,
    horizon: Annotated[int, opt.count("--horizon", "Steps it forecasts.")] = 96,
    quick: Annotated[bool, opt.switch("--quick", "1 seed, a few epochs: it runs, no more.")] = False,
    force: Annotated[bool, opt.switch("--force", "Run everything anew.", opt.OUTPUT)] = False,
    json: opt.Json = False,
    device: opt.Device = "auto",
    debug: opt.Debug = False,
) -> None:
    """Train regression, autoencoders, VQ tokenizers and a transformer.

    Codebooks are measured, too. Every run is one file in DIR/runs; the same command goes on where a stopped one left
    off. VQ tokenizers lie in DIR/vq as checkpoints for embed and spectrum. DIR/tokenizers.json and .csv hold the table.
    Errors are in squared standard deviations of the training rows, beside least squares, principal components or a
    seasonal naive. Runs that diverge are counted and enter no mean.

    Examples:
        rankscope lab tokenizers --data ETTh1.csv --quick --out tokens/
        rankscope lab tokenizers vq --data ETTh1.csv --codes 64,1024 --seeds 5 --out tokens/
        rankscope spectrum tokens/vq/vq-64-ema-e30-s0 --sites embedding
    """
    from rankscope_lab.tokenizers.run_spec import COMPONENTS, UPDATES, Plan

    if quick and (seeds or epochs):
        raise OptionError("--quick is 1 seed and a few epochs: leave out --seeds and --epochs, or --quick.")
    plan = Plan(
        components=opt.words(components) or COMPONENTS,
        codes=opt.whole_numbers("codes", codes, Plan.codes),
        updates=opt.words(updates) or UPDATES,
        seeds=1 if quick else seeds or Plan.seeds,
        epochs=epochs,
        lookback=lookback,
        horizon=horizon,
        quick=quick,
    )
    with Output(json) as output:
        report = _run(_table(data, columns), plan, out, device, force)
        written = partial(write_tables, report, out, REPORT)
        output.deliver(report, lambda console: show_tokenizers(report, console), also=written)
    if quick:
        say("--quick shows that everything runs: its numbers are no results.")
    for name in report.diverged:
        say(f"diverged: {name}: it is in no mean.")


def _table(data: str, columns: list[str] | None) -> VariableTable:
    from rankscope_lab.data.table import benchmark_columns, read_table

    return read_table(data, opt.words(columns) or benchmark_columns(data))


def _run(table: VariableTable, plan: Plan, out: str, device: str, force: bool) -> TokenizerReport:
    from rankscope_lab.tokenizers.study import run_study

    with progress_lines("reading the table", stopped=GOES_ON) as progress:
        return run_study(table, plan, out, device=device, force=force, progress=progress)


BESIDE = {
    "linear-regression": "least squares",
    "autoencoder": "principal components",
    "copy": "guessing",
    "forecast": "seasonal naive",
}
"""Baseline of every component's error."""
SHORT = {"linear-regression": "regression"}


def show_tokenizers(report: TokenizerReport, console: Console) -> None:
    """Print codebooks, then the other components beside what they are compared with."""
    console.print(report.data, style="bold", markup=False)
    coded = [row for row in report.rows if row.codes]
    if coded:
        _codebooks(coded, console)
    others = [row for row in report.rows if not row.codes]
    if others:
        _others(others, console)
    if report.diverged:
        console.print(f"{len(report.diverged)} of {len(report.runs)} runs diverged and are in no mean.", markup=False)


def _codebooks(rows: list[Row], console: Console) -> None:
    keys = list(next((row.eps_ranks for row in rows if row.eps_ranks), {}))
    table = plain_table("Codebooks: error of rebuilt test rows, use there, ε-ranks; mean of n seeds")
    add_columns(table, ["codes", "MSE", "used", "perpl.", *(f"ε={key}" for key in keys), "width", "n"])
    for row in rows:
        ranks = [f"{row.eps_ranks[key]:.1f}" if row.eps_ranks else MISSING for key in keys]
        used = f"{row.used:.0f}" if math.isfinite(row.used) else MISSING
        cells = [_error(row), used, figures(row.perplexity), *ranks, str(row.width)]
        table.add_row(row.setting, *cells, _count(row))
    print_table(table, console)
    console.print()


def _others(rows: list[Row], console: Console) -> None:
    table = plain_table("Test error, mean ± std of n seeds")
    add_columns(table, ["component", "setting", "error", "beside", "of", "n", "s"], left=2)
    for row in rows:
        name = SHORT.get(row.component, row.component)
        beside = BESIDE[row.component]
        seconds = figures(row.seconds)
        table.add_row(name, row.setting, _error(row), figures(row.reference), beside, _count(row), seconds)
    print_table(table, console)


def _error(row: Row) -> str:
    if row.error_std is None:
        return figures(row.error, 4)
    if row.error < 1e3:
        return f"{row.error:.4f} ± {row.error_std:.4f}"
    return f"{figures(row.error, 4)} ± {figures(row.error_std, 2)}"


def _count(row: Row) -> str:
    return f"{row.runs}" + (f" −{row.diverged}" if row.diverged else "")
