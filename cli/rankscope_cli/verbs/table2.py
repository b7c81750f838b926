"""``rankscope table2``: what every method costs at every size, in one table and one figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope.errors import OptionError
from rankscope_cli.exits import FAILED, say
from rankscope_cli.options import (
    BatchSize,
    Debug,
    Device,
    Dtype,
    Force,
    Json,
    Model,
    Revision,
    Samples,
    Seed,
    numbers,
    out_folder,
    whole_numbers,
    words,
)
from rankscope_cli.output import Output
from rankscope_cli.progress import progress_lines
from rankscope_cli.tables import MISSING, add_columns, plain_table, print_table, ratio_text

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope.measure.tradeoff import Measures, Table2Report, Table2Row
    from rankscope_eval.tradeoff import Grid


_SCORES = "Scores"


def run(
    model: Model = None,
    *,
    ratios: Annotated[
        list[str] | None,
        typer.Option("--ratios", "-r", metavar="R,…", help="Size ratios; 0.5,0.25,0.15,0.1,0.075,0.05 by default."),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            "--methods",
            "-m",
            metavar="NAME,…",
            help="As in compress, or healed afterwards: joint+healed; svd,asvd,whitened,theorem3,joint by default.",
        ),
    ] = None,
    allocations: Annotated[
        list[str] | None,
        typer.Option("--allocations", metavar="NAME,…", help="As in compress; each method's own default without."),
    ] = None,
    seeds: Annotated[
        list[str] | None,
        typer.Option("--seeds", metavar="S,…", help="Seeds of calibration sets and healings; 0,1,2 by default."),
    ] = None,
    heal_steps: Annotated[
        int | None,
        typer.Option(
            "--heal-steps", min=1, metavar="N", help="Steps of 32 series of every +healed method; 300 by default."
        ),
    ] = None,
    calibration: Annotated[
        str | None,
        typer.Option(
            "--calibration",
            "-c",
            metavar="SET",
            help="Series to look at: mixture:N, kernelsynth:N, a file; text:N of a text model.",
        ),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite", metavar="NAME|FILE", help="What is scored; embedded by default.", rich_help_panel=_SCORES
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", metavar="DIR", help="Folder of local data files.", rich_help_panel=_SCORES)
    ] = None,
    max_series: Annotated[
        int | None,
        typer.Option(
            "--max-series", min=1, metavar="N", help="Only the first series of each data set.", rich_help_panel=_SCORES
        ),
    ] = None,
    num_samples: Samples = 20,
    overlap_series: Annotated[
        int,
        typer.Option(
            "--overlap-series",
            min=1,
            metavar="N",
            help="Generated series that outputs are compared on.",
            rich_help_panel=_SCORES,
        ),
    ] = 1000,
    text: Annotated[
        str | None,
        typer.Option(
            "--text", metavar="FILE", help="Text (or token ids) to score a text model on.", rich_help_panel=_SCORES
        ),
    ] = None,
    out: Annotated[str, out_folder("Folder of the table, new or begun.")],
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the table in DIR; points that are done are kept.")
    ] = False,
    force: Force = False,
    json: Json = False,
    batch_size: BatchSize = 32,
    device: Device = "auto",
    dtype: Dtype = None,
    revision: Revision = None,
    seed: Seed = 0,
    debug: Debug = False,
) -> None:
    """Measure what every method costs at every size.

    This is the paper's Table 2 on your model. Every point is compressed, scored relative to the original, compared with
    it token by token (or quantile by quantile), timed against it in turns, and removed. DIR holds table2.json, .csv,
    .md, .png and .svg. A stopped run goes on with --resume; more ratios, methods or seeds add to the table. A method's
    name with +healed at its end is the method and then rankscope heal. A text model is scored by its log-perplexity on
    the second half of a text.

    Examples:
        rankscope table2 --out table/
        rankscope table2 bundled-bolt -r 0.5,0.15 -m svd,joint --max-series 20 --out quick/
        rankscope table2 bundled-bolt -r 0.075,0.05 -m joint,joint+healed --heal-steps 150 --out healed/
        rankscope table2 small-t5/ --text book.txt --out text/ --resume
    """
    from rankscope.checkpoints import open_checkpoint
    from rankscope_eval.forecasters import Forecasting
    from rankscope_eval.tradeoff import run_table2
    from rankscope_eval.tradeoff.scorers import TradeoffOptions

    if resume and force:
        raise OptionError("--resume goes on and --force starts anew: give one of them.")
    grid = _grid(ratios, methods, allocations, seeds, heal_steps)
    options = TradeoffOptions(
        suite=suite,
        data=data,
        max_series=max_series,
        how=Forecasting(num_samples, batch_size, seed, device, dtype, "stock"),
        overlap_series=overlap_series,
        calibration=calibration,
        text=text,
    )
    with Output(json) as output:
        try:
            with progress_lines("opening the model") as progress:
                source = open_checkpoint(model, revision=revision)
                report = run_table2(
                    source, out, grid=grid, options=options, resume=resume, force=force, progress=progress
                )
        except KeyboardInterrupt:
            if Path(out).exists():
                say("stopped: the same command with --resume goes on where this one left off.")
            raise
        output.deliver(report, lambda console: show_table2(report, console))
        output.wrote(sorted(Path(out).glob("table2.[jcmps]*")))
    for point in report.failed:
        say(f"failed: {point.name}: {point.reason}")
    if report.failed:
        raise typer.Exit(FAILED)


def _grid(
    ratios: list[str] | None,
    methods: list[str] | None,
    allocations: list[str] | None,
    seeds: list[str] | None,
    heal_steps: int | None,
) -> Grid:
    """Points of the options.

    Raises:
        OptionError: one is unknown or out of range.
    """
    from rankscope_eval.tradeoff import HEAL_STEPS, METHODS, RATIOS, SEEDS, Grid

    return Grid(
        numbers("ratios", ratios, RATIOS),
        METHODS if methods is None else words(methods) or (),
        words(allocations) or (),
        whole_numbers("seeds", seeds, SEEDS),
        HEAL_STEPS if heal_steps is None else heal_steps,
    )


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
