"""``rankscope bench``: interleaved timing and memory benchmark of forecasting models."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope import choices
from rankscope.errors import OptionError
from rankscope_cli import options as opt
from rankscope_cli.exits import FAILED
from rankscope_cli.output import Output, check_figures, save_figures
from rankscope_cli.progress import progress_bar
from rankscope_cli.tables import add_columns, plain_table, print_table
from rankscope_eval.numbers import MISSING, plural, ratio, short_count, significant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from rankscope_eval.bench import BenchReport, BenchRow
    from rankscope_eval.bench.turns import Spread


def run(
    models: Annotated[
        list[str] | None,
        opt.argument("MODEL[:RUNTIME[:FORMAT]]", "Hub ids, local folders or bundled names (default: bundled)."),
    ] = None,
    baseline: Annotated[
        str | None, opt.value("--baseline", "MODEL", "Model to compare with (default: the first).", short="-b")
    ] = None,
    batch: Annotated[
        list[str] | None, opt.value("--batch", "N,…", "Batch sizes, one table each (default: 1,8,32).")
    ] = None,
    num_samples: opt.Samples = 20,
    horizon: opt.Horizon = 64,
    context: Annotated[int, opt.count("--context", "Context length.")] = 512,
    rounds: Annotated[int, opt.count("--rounds", "Interleaved rounds to time.")] = 9,
    scores: Annotated[
        str | None, opt.value("--scores", "FILE", "Scores from `rankscope eval --out FILE`, for --figures.")
    ] = None,
    figures: opt.Figures = None,
    out: opt.Out = None,
    force: opt.Force = False,
    json: opt.Json = False,
    device: opt.Device = "auto",
    dtype: opt.ComputeDtype = None,
    runtime: Annotated[
        choices.BenchRuntime,
        opt.choice(
            "--runtime",
            choices.BenchRuntime,
            "Runtime of models given without one; compile: torch.compile of stock.",
            opt.RUNTIME,
        ),
    ] = "auto",
    threads: Annotated[
        int | None, opt.count("--threads", "Number of torch threads (default: torch's own).", opt.RUNTIME)
    ] = None,
    timeout: Annotated[
        float, opt.value("--timeout", "S", "Time limit in seconds for loading and for each round.", opt.RUNTIME, min=1)
    ] = 900.0,
    revision: opt.Revision = None,
    seed: opt.Seed = 0,
    debug: opt.Debug = False,
) -> None:
    """Benchmark inference time and peak memory.

    Each model runs in its own process: load, warm up, then one forecast per round, interleaved with the other models.
    Reports medians and ranges over rounds, and ratios computed within rounds. Peak memory is the growth of the process
    during loading and forecasting (on a GPU, torch's peak). The roofline is the minimum time at the memory bandwidth
    and matmul throughput measured in the same rounds.

    MODEL may include a runtime and a dtype, or be naive, seasonal-naive, auto-ets or auto-theta. --scores and
    --figures together plot WQL and MASE against time.

    Examples:
        rankscope bench bundled:fast bundled:stock --baseline bundled:stock
        rankscope bench small/ --baseline bundled --batch 1,32 --out bench.json
        rankscope bench bundled naive auto-ets --scores scores.csv --figures figures/
    """
    from rankscope_eval.bench import Settings, read_case, run_bench
    from rankscope_eval.bench.report import check_scored, read_scores

    with Output(json, out, force, signed=True) as output:
        batches = opt.whole_numbers("batch", batch, (1, 8, 32), least=1)
        settings = Settings(batches, num_samples, horizon, context, rounds, device, threads, seed, timeout)
        if bool(scores) != bool(figures):
            raise OptionError("--scores and --figures must be given together: the figures plot scores against time.")
        check_figures(figures, [f"pareto_batch_{one}" for one in batches], force)
        if scores is not None and not Path(scores).is_file():
            raise OptionError(f"--scores {scores}: no such file; create it with rankscope eval … --out {scores}.")
        scored = None if scores is None else read_scores(scores)
        cases = [read_case(one, runtime=runtime, dtype=dtype, revision=revision) for one in models or ["bundled"]]
        base = None if baseline is None else read_case(baseline, runtime=runtime, dtype=dtype)
        about = {"dtype": dtype, "runtime": runtime, "revision": revision}
        opt.refuse_without_weights([one.model for one in cases], about)
        if scored is not None:
            check_scored([*cases, *([] if base is None else [base])], scored[1])
        with progress_bar("starting") as progress:
            report = run_bench(cases, settings, baseline=base, progress=progress)
        drawn = None if scored is None or figures is None else partial(_draw, report, *scored, figures)
        output.deliver(report, lambda console: show_bench(report, console), also=drawn)
    if report.failures:
        raise typer.Exit(FAILED)


def _draw(report: BenchReport, baseline: str, relative: Mapping[str, tuple[float, float]], folder: str) -> list[Path]:
    """Draw one figure per batch size for the models with both timings and scores."""
    from rankscope.plots import pareto_of_points
    from rankscope_eval.bench.report import scored_points

    batches = list(dict.fromkeys(row.batch for row in report.rows))
    drawn = {
        f"pareto_batch_{batch}": pareto_of_points(scored_points(report, relative, batch), relative_to=baseline)
        for batch in batches
    }
    return save_figures(folder, drawn)


_SHORT = {"float32": "fp32", "float64": "fp64", "bfloat16": "bf16", "float16": "fp16"}


def show_bench(report: BenchReport, console: Console) -> None:
    """Print a table per batch size, a legend and the failures."""
    for number, batch in enumerate(dict.fromkeys(row.batch for row in report.rows)):
        if number:
            console.print()
        rows = [row for row in report.rows if row.batch == batch]
        most = max(row.context for row in rows)
        longest = f"{most} values" if all(row.context == most for row in rows) else f"at most {most} values"
        sizes = f"{longest} → {rows[0].horizon} steps, {plural(report.rounds, 'round')}"
        sizes += f", {_where(report, rows[0])}"
        console.print(f"batch {batch}: {sizes}", style="bold")
        _show_batch(report, rows, console)
    base = next(one.baseline for one in report.ratios) if report.ratios else "none"
    console.print(
        f"\nms: of one forecast of the batch; MB: peak memory above the imports; ratios: to {base}, "
        "medians over the rounds;\n"
        "roof: least time that the work can take at the rates of this machine / median."
    )
    for failure in report.failures:
        console.print(f"failed at batch {failure.batch}: {failure.reason}")


def _show_batch(report: BenchReport, rows: list[BenchRow], console: Console) -> None:
    table = plain_table()
    names = ["model", "runtime", "type", "ms (min–max)", "ratio", "MB", "ratio", "tok/s", "roof"]
    add_columns(table, names, left=3, folds=True)
    over = {one.label: one for one in report.ratios if one.batch == rows[0].batch}
    for row in rows:
        beside = over.get(row.label)
        table.add_row(
            row.model,
            row.runtime,
            _SHORT.get(row.dtype, row.dtype),
            _span(row.seconds),
            MISSING if beside is None else ratio(beside.seconds.median, 2),
            f"{row.peak_bytes / 1e6:.0f}",
            MISSING if beside is None else ratio(beside.peak_bytes, 2),
            short_count(row.tokens_per_second).replace(" ", ""),
            MISSING if row.achieved is None else f"{100 * row.achieved:.0f}%",
        )
    print_table(table, console)


def _span(seconds: Spread) -> str:
    """Format a timing in milliseconds, or in seconds from 10 s.

    >>> from rankscope_eval.bench.turns import Spread
    >>> _span(Spread(0.0123, 0.0120, 0.0127)), _span(Spread(12.3, 12.0, 12.7))
    ('12.3 (12.0–12.7)', '12.3s (12.0–12.7)')
    """
    scale, unit = (1.0, "s") if seconds.median >= 10 else (1e3, "")
    median, low, high = (significant(scale * value) for value in (seconds.median, seconds.min, seconds.max))
    return f"{median}{unit} ({low}–{high})"


def _where(report: BenchReport, row: BenchRow) -> str:
    if row.device != "cpu":
        return str(report.machine["device"])
    return f"{row.threads} thread" + "s" * (row.threads > 1)
