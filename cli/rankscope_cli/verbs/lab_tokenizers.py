"""``rankscope lab tokenizers``: linear regression, autoencoders, VQ tokenizers and a transformer on a table."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Annotated

from rankscope.errors import OptionError
from rankscope_cli import options as opt
from rankscope_cli.exits import say
from rankscope_cli.output import Output, write_tables
from rankscope_cli.progress import GOES_ON, progress_lines
from rankscope_cli.tables import add_columns, plain_table, print_table
from rankscope_eval.numbers import MISSING, significant

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope_lab.data.table import VariableTable
    from rankscope_lab.tokenizers.run_spec import Plan
    from rankscope_lab.tokenizers.study import Row, TokenizerReport


REPORT = "tokenizers"


def run(
    components: Annotated[
        list[str] | None,
        opt.argument("COMPONENT", "linear-regression, autoencoder, vq, copy, forecast (default: all)."),
    ] = None,
    *,
    data: Annotated[str, opt.value("--data", "FILE", "CSV with a date column and one column per variable.")],
    out: Annotated[str, opt.out_folder("Folder of runs, new or existing.")],
    columns: Annotated[list[str] | None, opt.value("--columns", "NAME,…", "Variables (default: all).")] = None,
    codes: Annotated[list[str] | None, opt.value("--codes", "N,…", "Codebook sizes (default: 64,256,1024).")] = None,
    updates: Annotated[
        list[str] | None, opt.value("--updates", "NAME,…", "Codebook updates: ema revived loss (default: all).")
    ] = None,
    seeds: opt.Seeds = None,
    epochs: Annotated[int | None, opt.count("--epochs", "Epochs per run (default: depends on the component).")] = None,
    lookback: Annotated[int, opt.count("--lookback", "Look-back window in steps.")] = 96,
    horizon: Annotated[int, opt.count("--horizon", "Forecast horizon in steps.")] = 96,
    quick: Annotated[bool, opt.switch("--quick", "Smoke test: 1 seed, a few epochs.")] = False,
    force: Annotated[bool, opt.switch("--force", "Retrain existing runs.", opt.OUTPUT)] = False,
    json: opt.Json = False,
    device: opt.Device = "auto",
    debug: opt.Debug = False,
) -> None:
    """Linear regression, autoencoders, VQ tokenizers, transformer.

    Trains each component and measures the codebooks. Each run is one file in DIR/runs; rerun the same command to
    resume. VQ tokenizers are saved in DIR/vq as checkpoints for embed and spectrum. DIR/tokenizers.json and .csv hold
    the table. Errors are MSE after scaling by the training rows' standard deviation, compared with least squares, PCA
    or seasonal naive. Diverged runs are counted but excluded from means.

    Examples:
        rankscope lab tokenizers --data ETTh1.csv --quick --out tokens/
        rankscope lab tokenizers vq --data ETTh1.csv --codes 64,1024 --seeds 5 --out tokens/
        rankscope spectrum tokens/vq/vq-64-ema-e30-s0 --sites embedding
    """
    from rankscope_lab.tokenizers.run_spec import COMPONENTS, UPDATES, Plan

    if quick and (seeds or epochs):
        raise OptionError("--quick sets 1 seed and a few epochs; leave out --seeds and --epochs, or --quick.")
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
        say("--quick is a smoke test; its results are not meaningful.")
    for name in report.diverged:
        say(f"diverged: {name}: excluded from means.")


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
"""Component → its baseline."""
SHORT = {"linear-regression": "regression"}


def show_tokenizers(report: TokenizerReport, console: Console) -> None:
    """Print the codebooks, then the other components with their baselines."""
    console.print(report.data, style="bold")
    coded = [row for row in report.rows if row.codes]
    if coded:
        _codebooks(coded, console)
    others = [row for row in report.rows if not row.codes]
    if others:
        _others(others, console)
    if report.diverged:
        console.print(f"{len(report.diverged)} of {len(report.runs)} runs diverged and are excluded from means.")


def _codebooks(rows: list[Row], console: Console) -> None:
    keys = list(next((row.eps_ranks for row in rows if row.eps_ranks), {}))
    table = plain_table("Codebooks on test rows: reconstruction error, usage, ε-ranks; mean of n seeds")
    add_columns(table, ["codes", "MSE", "used", "perpl.", *(f"ε={key}" for key in keys), "width", "n"])
    for row in rows:
        ranks = [f"{row.eps_ranks[key]:.1f}" if row.eps_ranks else MISSING for key in keys]
        used = f"{row.used:.0f}" if math.isfinite(row.used) else MISSING
        cells = [_error(row), used, significant(row.perplexity), *ranks, str(row.width)]
        table.add_row(row.setting, *cells, _count(row))
    print_table(table, console)
    console.print()


def _others(rows: list[Row], console: Console) -> None:
    table = plain_table("Test error, mean ± std of n seeds")
    add_columns(table, ["component", "setting", "error", "beside", "of", "n", "s"], left=2)
    for row in rows:
        name = SHORT.get(row.component, row.component)
        beside = BESIDE[row.component]
        seconds = significant(row.seconds)
        table.add_row(name, row.setting, _error(row), significant(row.reference), beside, _count(row), seconds)
    print_table(table, console)


def _error(row: Row) -> str:
    if row.error_std is None:
        return significant(row.error, 4)
    if row.error < 1e3:
        return f"{row.error:.4f} ± {row.error_std:.4f}"
    return f"{significant(row.error, 4)} ± {significant(row.error_std, 2)}"


def _count(row: Row) -> str:
    return f"{row.runs}" + (f" −{row.diverged}" if row.diverged else "")
