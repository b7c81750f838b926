"""``rankscope sweep``: train, measure and score a grid of models."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankscope_cli import options as opt
from rankscope_cli.exits import FAILED, say
from rankscope_cli.output import Output
from rankscope_cli.own_series import INPUT, given, own_suite, reading, refuse
from rankscope_cli.progress import GOES_ON, progress_lines
from rankscope_cli.tables import add_columns, plain_table, print_table
from rankscope_eval.numbers import MISSING, significant

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope.measure.sweep import SweepReport, SweepRow
    from rankscope.train.sweeps import Scoring, SweepPlan
    from rankscope_eval import Suite

SAMPLES = 20
"""Sample paths per series by default."""


def run(
    sweep: Annotated[
        str,
        opt.argument("SWEEP", "width, chebyshev, patch, heads, design, design-bolt, or a YAML file."),
    ],
    *,
    out: Annotated[str, opt.out_folder("Folder of the sweep, new or existing.")],
    steps: Annotated[int | None, opt.count("--steps", "Optimiser steps per point (default: the sweep's own).")] = None,
    seed: Annotated[int | None, opt.value("--seed", "S", "Override the sweep's seed.", min=0)] = None,
    only: Annotated[
        list[str] | None, opt.value("--only", "POINT,…", "Run only these points and those they inherit from.")
    ] = None,
    dry_run: Annotated[
        bool, opt.switch("--dry-run", "List the points with parameters and steps, without training.")
    ] = False,
    engine: opt.EngineName = "local",
    jobs: Annotated[
        int,
        opt.value(
            "--jobs", "N", "Concurrent points; 0: one per GPU (or one), on a cluster as many as fit.", opt.SPREAD, min=0
        ),
    ] = 0,
    address: opt.Address = "",
    score: Annotated[
        str | None, opt.value("--score", "SUITE", "Score every point on this `rankscope eval` suite.", opt.SCORES)
    ] = None,
    data: opt.ScoreData = None,
    max_series: opt.MaxSeries = None,
    input: opt.Input = None,
    horizon: opt.InputHorizon = None,
    windows: opt.Windows = None,
    freq: opt.Freq = None,
    season_length: opt.SeasonLength = None,
    id_column: opt.IdColumn = None,
    time_column: opt.TimeColumn = None,
    target_column: opt.TargetColumn = None,
    num_samples: Annotated[
        int | None, opt.count("--num-samples", f"Sample paths per series (default: {SAMPLES}).", opt.SCORES)
    ] = None,
    force: Annotated[bool, opt.switch("--force", "Retrain all points, or those of --only.", opt.OUTPUT)] = False,
    json: opt.Json = False,
    device: opt.Device = "auto",
    debug: opt.Debug = False,
) -> None:
    """Train, measure and score a grid of models.

    Models are saved in DIR/points, their ranks and scores in DIR/sweep.json, .csv and .parquet. Rerun the same command
    to resume: finished points are skipped, unfinished ones continue from their snapshot. A failed point does not stop
    the others; failures are listed at the end (exit code 1). With --engine ray, DIR must be on storage that all
    machines share under the same path.

    Examples:
        rankscope sweep width --out width/ --dry-run
        rankscope sweep design --out design/ --score embedded
        rankscope sweep design --out design/ --input sales.csv --horizon 12
        rankscope sweep heads --out /shared/heads --engine ray --address auto
    """
    from rankscope.engine.device import resolve_device
    from rankscope.train import sweeps

    cluster = engine == "ray" and device.startswith("cuda")  # there devices belong to the cluster
    resolve_device("cpu" if cluster else device)
    spec = sweeps.find_sweep(sweep)
    how = sweeps.Engine(engine, jobs=jobs, address=address, device=device)
    read = reading(input is not None, INPUT, freq, id_column, time_column, target_column)
    own = own_suite(input, horizon, windows, season_length, read, {"score": score, "data": data})
    told = {
        "data": data,
        "horizon": horizon,
        "windows": windows,
        "season_length": season_length,
        "freq": freq,
        "id_column": id_column,
        "time_column": time_column,
        "target_column": target_column,
    }
    name = ", ".join([input or score or "", *(f"{word} {value}" for word, value in given(told).items())])
    scoring = _scoring(own or score, name, data, max_series, num_samples, device)
    with Output(json) as output:
        if dry_run:
            points, chosen = sweeps.choose_points(spec, steps=steps, seed=seed, only=opt.words(only))
            plan = sweeps.plan_sweep(spec, points, chosen, out)
            output.deliver(plan, lambda console: show_plan(plan, console))
            return
        with progress_lines("preparing", stopped=GOES_ON) as progress:
            report = sweeps.run_sweep(
                spec,
                out,
                steps=steps,
                seed=seed,
                only=opt.words(only),
                engine=how,
                scoring=scoring,
                force=force,
                progress=progress,
                note=None if sys.stderr.isatty() else say,
            )
        output.deliver(report, lambda console: show_sweep(report, console))
        output.wrote([Path(out) / f"sweep{suffix}" for suffix in (".json", ".csv", ".parquet")])
    for row in report.failed:
        say(f"failed: {row.point}: {row.error}")
    if report.failed:
        raise typer.Exit(FAILED)


def _scoring(
    suite: str | Suite | None, name: str, data: str | None, max_series: int | None, num_samples: int | None, device: str
) -> Scoring | None:
    """Build the scoring on a suite; its name identifies all settings and data that affect scores.

    Raises:
        RankscopeError: the suite or its data are not usable.
    """
    if suite is None:
        refuse({"data": data, "max_series": max_series, "num_samples": num_samples}, "--score SUITE or --input FILE")
        return None
    from rankscope.train.sweeps import Scoring
    from rankscope_eval import Forecasting, Scorer, read_suite

    samples = SAMPLES if num_samples is None else num_samples
    how = Forecasting(num_samples=samples, device=device)
    loaded = read_suite(suite, data, max_series=max_series)
    limits = f", first {max_series} series" if max_series is not None else ""
    found = hashlib.sha256(f"{loaded.suite.tasks!r} {loaded.contents()}".encode()).hexdigest()[:8]
    return Scoring(Scorer(loaded, how), f"{name}, {samples} samples{limits}, contents {found}")


_SHOWN_SCORES = ("relative_WQL", "relative_MASE")


def show_plan(plan: SweepPlan, console: Console) -> None:
    """Print the points of a dry run."""
    table = plain_table(title=f"{plan.name}: {plan.about}" if plan.about else plan.name)
    add_columns(table, ["point", "changes", "parameters", "steps", "steps left", "state"], left=2)
    for point in plan.points:
        changes = ", ".join(f"{name} {value}" for name, value in point.fields.items()) or MISSING
        numbers = [f"{point.parameters:,}", f"{point.steps:,}", f"{point.steps_left:,}"]
        table.add_row(point.point, changes, *numbers, point.state)
    print_table(table, console)
    left = sum(point.steps_left for point in plan.points)
    console.print(f"{len(plan.points)} points, {left:,} steps left")


def show_sweep(report: SweepReport, console: Console) -> None:
    """Print one row per point: size, loss, mean ε-ranks of W_Q and of its heads, scores."""
    keys = [repr(float(eps)) for eps in report.eps]
    scores = [name for name in _SHOWN_SCORES if any(name in row.scores for row in report.points)]
    table = plain_table(
        title=f"{report.name}: {report.about}" if report.about else report.name,
        caption="Mean ε-rank of W_Q over all trained layers; heads: per head, at the first ε.",
    )
    ranks = [f"ε={key}" for key in keys]
    header = ["point", "state", "parameters", "steps", "loss", *ranks, "heads", "embed."]
    add_columns(table, [*header, *(name.replace("relative_", "rel. ") for name in scores)], left=2)
    for row in report.points:
        size = f"{row.parameters:,}" if row.parameters else MISSING
        steps = f"{row.steps:,}" if row.steps else MISSING
        cells = [significant(row.scores.get(name)) for name in scores]
        table.add_row(row.point, row.state, size, steps, significant(row.loss), *_ranks(row, keys), *cells)
    print_table(table, console)


def _ranks(row: SweepRow, keys: list[str]) -> list[str]:
    if row.ranks is None:
        return [MISSING] * (len(keys) + 2)
    from rankscope.measure.sweep import ALL, mean_head_rank

    means: dict[str, Any] = row.ranks.mean_ranks[ALL]
    cells = [f"{means[key]:.1f}" if key in means else MISSING for key in keys]
    if keys[0] not in means:
        return [*cells, MISSING, MISSING]
    return [*cells, f"{mean_head_rank(row.ranks, keys[0]):.1f}", str(row.ranks.embeddings[-1].eps_ranks[keys[0]])]
