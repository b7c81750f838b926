"""``rankscope bench``: time and memory of forecasts, model by model and turn by turn."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope.errors import OptionError
from rankscope_cli.bench_table import show_bench
from rankscope_cli.drawing import check_figures, save_figures
from rankscope_cli.exits import FAILED
from rankscope_cli.options import Debug, Device, Dtype, Figures, Force, Json, Revision, Samples, Seed, choice, words
from rankscope_cli.options import Table as Out
from rankscope_cli.output import Output
from rankscope_cli.progress import progress_bar

if TYPE_CHECKING:
    from rankscope_eval.bench import BenchReport, Case

RUNTIMES = ("auto", "fast", "stock", "compile")


def run(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL[:RUNTIME[:FORMAT]]...",
            help="Hub ids, local folders or bundled names; bundled by default.",
            show_default=False,
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", "-b", metavar="MODEL", help="What ratios are over; the first model by default."),
    ] = None,
    batch: Annotated[
        list[str] | None,
        typer.Option("--batch", metavar="N,…", help="Series per forecast, one table each; 1,8,32 by default."),
    ] = None,
    num_samples: Samples = 20,
    horizon: Annotated[int, typer.Option("--horizon", "-H", min=1, metavar="STEPS", help="Steps to forecast.")] = 64,
    context: Annotated[int, typer.Option("--context", min=1, metavar="N", help="Values per series.")] = 512,
    rounds: Annotated[int, typer.Option("--rounds", min=1, metavar="N", help="Turns of every model.")] = 9,
    scores: Annotated[
        str | None,
        typer.Option("--scores", metavar="FILE", help="Table of `rankscope eval … --out FILE`, for --figures."),
    ] = None,
    figures: Figures = None,
    out: Out = None,
    force: Force = False,
    json: Json = False,
    device: Device = "auto",
    dtype: Dtype = None,
    runtime: Annotated[
        str, choice("--runtime", RUNTIMES, "Of models that name none; compile is torch.compile of stock.", "Runtime")
    ] = "auto",
    threads: Annotated[
        int | None,
        typer.Option("--threads", min=1, metavar="N", help="Threads of torch.", rich_help_panel="Runtime"),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", min=1, metavar="S", help="Seconds for loading, or a turn.", rich_help_panel="Runtime"
        ),
    ] = 900.0,
    revision: Revision = None,
    seed: Seed = 0,
    debug: Debug = False,
) -> None:
    """Time and peak memory of forecasts, side by side, in processes that take turns.

    Every model is loaded in a process of its own, warmed up, and forecasts once a round; medians and spreads are over
    rounds, ratios over those of the same round. Peak memory is what loading and forecasting added to the process (on a
    GPU torch's peak). The roofline is the least time that the work can take at the copy bandwidth and the matrix
    product rate measured in the same rounds.

    MODEL may name its runtime and number format, and may be naive, seasonal-naive, auto-ets or auto-theta. With
    --scores the figures show WQL and MASE against time.

    Examples:
        rankscope bench bundled:fast bundled:stock --baseline bundled:stock
        rankscope bench small/ --baseline bundled --batch 1,32 --out bench.json
        rankscope bench bundled naive auto-ets --scores scores.csv --figures figures/
    """
    from rankscope_eval.bench import Settings, read_case, run_bench

    with Output(json, out, force, signed=True) as output:
        batches = _batches(batch)
        settings = Settings(batches, num_samples, horizon, context, rounds, device, threads, seed, timeout)
        if bool(scores) != bool(figures):
            raise OptionError("--scores and --figures go together: the figures show scores against time.")
        check_figures(figures, [f"pareto_batch_{one}" for one in batches], force)
        if scores is not None and not Path(scores).is_file():
            raise OptionError(f"--scores {scores}: there is no such file; write it by rankscope eval … --out {scores}.")

        def case(text: str) -> Case:
            return read_case(text, runtime=runtime, dtype=dtype, revision=revision)

        with progress_bar("starting") as progress:
            report = run_bench(
                [case(one) for one in models or ["bundled"]],
                settings,
                baseline=None if baseline is None else case(baseline),
                progress=progress,
            )
        drawn = None if scores is None or figures is None else partial(_draw, report, scores, figures)
        output.deliver(report, lambda console: show_bench(report, console), also=drawn)
    if report.failures:
        raise typer.Exit(FAILED)


def _batches(values: list[str] | None) -> tuple[int, ...]:
    parts = words(values)
    if parts is None:
        return (1, 8, 32)
    for part in parts:
        if not part.isdecimal() or int(part) < 1:
            raise OptionError(f"--batch {part!r} is not usable: give whole numbers, at least 1, like 1,8,32.")
    if not parts:
        raise OptionError("--batch is empty: give at least one number.")
    return tuple(dict.fromkeys(int(part) for part in parts))


def _draw(report: BenchReport, scores: str, folder: str) -> list[Path]:
    """One figure per batch of the models that were both timed and scored."""
    from rankscope.plots import pareto_of_points
    from rankscope_eval.bench.scored import read_scores, scored_points

    known = read_scores(scores)
    batches = list(dict.fromkeys(row.batch for row in report.rows))
    drawn = {
        f"pareto_batch_{batch}": pareto_of_points(scored_points(report, known, batch), relative_to=known.baseline)
        for batch in batches
    }
    return save_figures(folder, drawn)
