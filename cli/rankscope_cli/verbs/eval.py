"""``rankscope eval``: MASE and WQL of models on a suite of data sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from rankscope_cli.eval_table import show_eval
from rankscope_cli.options import (
    RUNTIMES,
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
    check_choice,
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
    means over data sets of score / score of the baseline. A CSV has the columns that chronos-forecasting publishes.

    Examples:
        rankscope eval
        rankscope eval small/ --baseline bundled --out scores.csv
        rankscope eval seasonal-naive --suite backtest.yaml --data benchmark/ --json
    """
    from rankscope_eval import evaluate

    settings = forecaster_settings(num_samples, batch_size, seed, device, dtype, runtime)
    with Output(json, out, force, signed=True) as output:
        with progress_bar("opening the model") as progress:
            report = evaluate(
                at_revision(models or ["bundled"], revision, settings),
                suite=suite,
                data=data,
                baseline=baseline,
                tasks=words(tasks),
                max_series=max_series,
                progress=progress,
                **settings,
            )
        output.deliver(report, lambda console: show_eval(report, console))


def forecaster_settings(
    num_samples: int, batch_size: int, seed: int, device: str, dtype: str | None, runtime: str
) -> dict[str, Any]:
    """What the options say of how models forecast, by the names that `rankscope_eval` knows.

    Raises:
        OptionError: the device, the number format or the runtime cannot be used.
    """
    from rankscope.placement import resolve_device, resolve_dtype

    check_choice("runtime", runtime, RUNTIMES)
    where = {"device": resolve_device(device), "dtype": resolve_dtype(dtype), "runtime": runtime}
    return {"num_samples": num_samples, "batch_size": batch_size, "seed": seed, **where}


def at_revision(models: Sequence[str], revision: str | None, settings: dict[str, Any]) -> list[Any]:
    """Give the models by name, or open those that are no baseline at a revision of theirs."""
    if revision is None:
        return list(models)
    from rankscope import load_pipeline
    from rankscope_eval.baselines import BASELINES
    from rankscope_eval.forecasters import pipeline_forecaster

    options = {name: settings[name] for name in ("num_samples", "batch_size", "seed")}
    where = {name: settings[name] for name in ("device", "dtype", "runtime") if name in settings}
    return [
        model
        if model in BASELINES
        else pipeline_forecaster(model, load_pipeline(model, revision=revision, **where), **options)
        for model in models
    ]
