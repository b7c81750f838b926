"""``rankscope eval``: MASE and WQL of models on a suite of data sets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from rankscope.errors import OptionError, RankscopeError
from rankscope_cli.eval_table import show_eval
from rankscope_cli.exits import say
from rankscope_cli.forecasters import at_revision, forecaster_settings
from rankscope_cli.options import (
    BatchSize,
    Debug,
    Device,
    Dtype,
    Force,
    Json,
    Models,
    Revision,
    Runtime,
    Samples,
    Seed,
    words,
)
from rankscope_cli.options import Table as Out
from rankscope_cli.output import Output
from rankscope_cli.progress import progress_bar


def run(
    models: Models = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline", "-b", metavar="MODEL", help="What relative scores divide by; seasonal-naive by default."
        ),
    ] = None,
    suite: Annotated[
        str,
        typer.Option(
            "--suite", metavar="NAME|FILE", help="embedded, chronos-in-domain, chronos-zero-shot, or a YAML file."
        ),
    ] = "embedded",
    data: Annotated[str | None, typer.Option("--data", metavar="DIR", help="Folder of local data files.")] = None,
    tasks: Annotated[
        list[str] | None, typer.Option("--tasks", "-t", metavar="NAME,…", help="Only these tasks of the suite.")
    ] = None,
    max_series: Annotated[
        int | None,
        typer.Option("--max-series", min=1, metavar="N", help="Only the first series of each data set: a quick look."),
    ] = None,
    num_samples: Samples = 20,
    batch_size: BatchSize = 32,
    out: Out = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the rows that an unfinished run kept.", rich_help_panel="Output"),
    ] = False,
    force: Force = False,
    json: Json = False,
    device: Device = "auto",
    dtype: Dtype = None,
    runtime: Runtime = "auto",
    revision: Revision = None,
    seed: Seed = 0,
    debug: Debug = False,
) -> None:
    """MASE and WQL on a suite of data sets, also relative to a baseline.

    MODEL may also be naive, seasonal-naive, auto-ets or auto-theta. Lower is better; relative scores are geometric
    means over data sets of score / score of the baseline, their 95 % intervals a bootstrap over data sets and series.
    A CSV has the columns that chronos-forecasting publishes.
    With --out every row is kept as soon as it is measured, so that --resume goes on after an interrupt or an error.

    Examples:
        rankscope eval
        rankscope eval small/ --baseline bundled --out scores.csv
        rankscope eval --suite chronos-zero-shot --out scores.csv --resume
        rankscope eval seasonal-naive --suite backtest.yaml --data benchmark/ --json
    """
    from rankscope_eval import evaluate

    settings = forecaster_settings(num_samples, batch_size, seed, device, dtype, runtime)
    with Output(json, out, force, signed=True) as output:
        kept = _kept(out, resume, force)
        with _mentioned(kept), progress_bar("opening the model") as progress:
            report = evaluate(
                at_revision(models or ["bundled"], revision, settings),
                suite=suite,
                data=data,
                baseline=baseline,
                tasks=words(tasks),
                max_series=max_series,
                kept=kept,
                resume=resume,
                progress=progress,
                **settings,
            )
        output.deliver(report, lambda console: show_eval(report, console))
        if kept is not None:
            kept.unlink(missing_ok=True)


def _kept(out: str | None, resume: bool, force: bool) -> Path | None:
    """Where rows are kept until the table is written: beside it.

    Raises:
        OptionError: there is nothing to go on with, or something that would be lost.
    """
    if out is None:
        if resume:
            raise OptionError("--resume goes on with what a run with --out kept: give --out.")
        return None
    file = Path(out).with_name(f".{Path(out).name}.partial")
    if resume and not file.exists():
        raise OptionError(f"--resume: there is no {file}, so no unfinished run to go on with.")
    if file.exists() and not resume and not force:
        raise OptionError(f"rows of an unfinished run lie in {file}: go on with --resume, or start anew with --force.")
    return file


@contextlib.contextmanager
def _mentioned(kept: Path | None) -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, RankscopeError):
        if kept is not None and kept.exists():
            say(f"what was measured is in {kept}: the same command with --resume goes on.")
        raise
