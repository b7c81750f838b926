"""``rankscope lab slt``: sparse-layered transformers, PatchTST-like, N-BEATS-like, and floors."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from rankscope.errors import OptionError
from rankscope_cli import options as opt
from rankscope_cli.exits import say
from rankscope_cli.output import Output, write_tables
from rankscope_cli.progress import GOES_ON, progress_lines
from rankscope_cli.tables import MISSING, add_columns, figures, plain_table, print_table, ratio_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from rankscope.engine.pool import Engine
    from rankscope_lab.slt.report import Comparison, Row, SltReport, SpeedUp
    from rankscope_lab.slt.run_spec import RunResult, RunSpec
    from rankscope_lab.statistics import Spread


Protocol = Literal["released", "field", "both"]
REPORT = "slt"
DEFAULT_QUESTIONS = ("published",)


def run(
    *,
    data: Annotated[str, opt.value("--data", "DIR", "Folder of the tables, one CSV file each.")],
    out: Annotated[str, opt.out_folder("Folder of the runs, new or begun.")],
    datasets: Annotated[list[str] | None, opt.value("--datasets", "NAME,…", "Tables; ETTh1,ETTh2 by default.")] = None,
    models: Annotated[
        list[str] | None,
        opt.value("--models", "NAME,…", "slt patchtst nbeats dlinear naive (the default), or variants."),
    ] = None,
    protocol: Annotated[
        Protocol, opt.choice("--protocol", Protocol, "Split, look-back, choice of weights.")
    ] = "released",
    ablation: Annotated[
        list[str] | None,
        opt.value(
            "--ablation",
            "NAME,…",
            "published block-position block-position-validated place attention offset revin choice validated floor "
            "time, or all.",
        ),
    ] = None,
    revin: Annotated[bool, opt.switch("--revin", "Every model also with instance normalisation.")] = False,
    seeds: opt.Seeds = None,
    epochs: Annotated[int | None, opt.count("--epochs", "Of every run; 10.")] = None,
    ignore_times: Annotated[
        bool, opt.switch("--ignore-times", "Take rows as they stand where the column date repeats or skips a time.")
    ] = False,
    horizon: Annotated[int, opt.count("--horizon", "Steps to forecast.")] = 96,
    lookback: Annotated[int, opt.count("--lookback", "Steps that models read.")] = 512,
    quick: Annotated[
        bool, opt.switch("--quick", "1 seed × 1 epoch on the first table, some 5 minutes: it runs, no more.")
    ] = False,
    engine: opt.EngineName = "local",
    jobs: Annotated[int, opt.value("--jobs", "N", "Runs at a time; 0: one per core.", opt.SPREAD, min=0)] = 1,
    address: opt.Address = "",
    precision: opt.Precision = "float32",
    json: opt.Json = False,
    device: opt.Device = "auto",
    debug: opt.Debug = False,
) -> None:
    """Train sparse-layered transformers, PatchTST and N-BEATS on ETT tables.

    Errors and times are printed beside the published ones. Every run is one JSON file in DIR, the weights that were
    tested beside it; the same command goes on where a stopped one left off. Runs that diverge are counted and enter no
    mean. DIR/slt.json and slt.csv hold the tables of the last command. Variants: slt-additive, patchtst-mult,
    slt-middle, slt-bottom, slt-offset, projections, head.

    Examples:
        rankscope lab slt --data ETTh/ --quick --out slt/
        rankscope lab slt --data ETTh/ --out slt/ --protocol both --seeds 5 --jobs 2
        rankscope lab slt --data ETTh/ --out slt/ --models slt,patchtst --ablation all
    """
    from rankscope.engine.device import resolve_device
    from rankscope.engine.pool import Engine
    from rankscope_lab.slt import runs
    from rankscope_lab.slt.ablations import ABLATIONS
    from rankscope_lab.slt.models import MAIN
    from rankscope_lab.slt.report import study_report

    if quick and (seeds or epochs):
        raise OptionError("--quick is 1 seed × 1 epoch: leave out --seeds and --epochs, or --quick.")
    asked = opt.words(ablation) or ()
    questions = tuple(ABLATIONS) if asked == ("all",) else asked
    settings = runs.settings_of(opt.words(models) or MAIN, questions, revin)
    tables = runs.find_tables(data, opt.words(datasets) or runs.TABLES)
    specs = runs.study_specs(
        settings,
        tables[:1] if quick else tables,
        ("released", "field") if protocol == "both" else (protocol,),
        1 if quick else seeds or 3,
        epochs=1 if quick else epochs or 10,
        precision=precision,
        horizon=horizon,
        lookback=lookback,
    )
    where = Engine(engine, jobs, address, resolve_device(device))
    with Output(json) as output:
        results = _run(specs, data, out, where, ignore_times)
        report = study_report(results, questions or DEFAULT_QUESTIONS)
        written = partial(write_tables, report, out, REPORT)
        output.deliver(report, lambda console: show_slt(report, console), also=written)
    if quick:
        say("--quick is not the published protocol: 10 epochs, and several seeds, are.")
    for name in report.diverged:
        say(f"diverged: {name}: it is in no mean.")


def _run(specs: list[RunSpec], data: str, out: str, where: Engine, ignore_times: bool) -> list[RunResult]:
    from rankscope_lab.slt import runs

    with progress_lines("reading tables", stopped=GOES_ON) as progress:
        return runs.run_specs(specs, data, out, engine=where, ignore_times=ignore_times, progress=progress)


ERRORS = "test error, scaled units, mean ± std of n seeds"
TOLERANCES = {
    "published twice": "within: as near as the two numbers that were published for the same model",
    "2 std of ours": "within: as near as two standard deviations over our seeds",
}
BEST = "best val.: with the weights of the least validation error, whatever is tested"
COST = "Cost: parameters, seconds of training, forecasts"
RATIOS = "SLT against PatchTST-like (the runs did not take turns)"


def show_slt(report: SltReport, console: Console) -> None:
    """Print errors beside published ones, then cost, ratios, and what the ablations say."""
    for place in dict.fromkeys((row.dataset, row.protocol) for row in report.rows):
        _errors(*place, [row for row in report.rows if (row.dataset, row.protocol) == place], console)
    _cost(report.rows, console)
    if report.speed_ups:
        _ratios(report.speed_ups, console)
    for title in dict.fromkeys(one.title for one in report.comparisons):
        _compared(title, [one for one in report.comparisons if one.title == title], console)
    if report.diverged:
        console.print(f"{len(report.diverged)} of {report.runs} runs diverged and are in no mean.", markup=False)


def _errors(dataset: str, protocol: str, rows: list[Row], console: Console) -> None:
    table = plain_table(f"{dataset}, {protocol}{_rounded(rows)}: {ERRORS}")
    add_columns(table, ["model", "MSE", "MAE", "best val. MSE", "n", "published", "verdict"])
    for row in rows:
        beside = (f"{row.verdict.published:.4f}", row.verdict.word) if row.verdict else ("", "")
        count = f"{row.mse.n}" + (f" −{row.diverged}" if row.diverged else "")
        best = _spread(row.best_mse) if row.parameters else MISSING
        table.add_row(
            row.model, _spread(row.mse), f"{row.mae.mean:.3f}" if row.mae.n else MISSING, best, count, *beside
        )
    print_table(table, console)
    console.print(BEST, markup=False, style="dim")
    for basis in dict.fromkeys(row.verdict.basis for row in rows if row.verdict and row.verdict.basis):
        console.print(TOLERANCES[basis], markup=False, style="dim")
    console.print()


def _cost(rows: tuple[Row, ...], console: Console) -> None:
    table = plain_table(COST)
    add_columns(table, ["table", "protocol", "model", "parameters", "s/epoch", "windows/s"], left=3)
    for row in rows:
        seconds = figures(row.seconds_per_epoch) if row.parameters else MISSING
        rate = f"{row.windows_per_second:,.0f}" if row.mse.n else MISSING
        table.add_row(row.dataset, row.protocol, row.model, f"{row.parameters:,}", seconds, rate)
    print_table(table, console)
    for machine in dict.fromkeys(row.machine for row in rows):
        console.print(f"on {machine}{_rounded(rows)}", markup=False, style="dim")


def _rounded(rows: Sequence[Row]) -> str:
    """Precisions other than float32."""
    others = {row.precision for row in rows if row.parameters} - {"float32"}
    return "".join(f", {name}" for name in sorted(others))


def _ratios(ratios: tuple[SpeedUp, ...], console: Console) -> None:
    console.print()
    table = plain_table(RATIOS)
    add_columns(table, ["table", "protocol", "training ×", "inference ×", "publ.", "gain %", "publ."], left=2)
    for one in ratios:
        gains = [MISSING if value is None else f"{100 * value:.1f}" for value in (one.gain, one.published_gain)]
        speeds = [ratio_text(value) for value in (one.training, one.inference, one.published)]
        table.add_row(one.dataset, one.protocol, *speeds, *gains)
    print_table(table, console)


def _compared(title: str, found: list[Comparison], console: Console) -> None:
    console.print()
    console.print(f"{title}: MSE, first − second", style="bold", markup=False)
    table = plain_table()
    add_columns(table, ["table", "protocol", "first", "second", "difference", "%", "p", "wins"], left=4)
    for one in found:
        pairs = one.mse.difference.n
        table.add_row(
            one.dataset,
            one.protocol,
            one.first.replace(" & ", "\n"),
            one.second.replace(" & ", "\n"),
            _spread(one.mse.difference, sign=True) if pairs else MISSING,
            f"{100 * one.relative:+.1f}" if pairs else MISSING,
            figures(one.mse.p, 2),
            f"{one.mse.lower}/{pairs}",
        )
    print_table(table, console)
    if any(" & " in one.first for one in found):
        console.print("two models in a cell: the mean of their errors", markup=False, style="dim")


def _spread(value: Spread, digits: int = 4, sign: bool = False) -> str:
    if not value.n:
        return MISSING
    mean = f"{value.mean:+.{digits}f}" if sign else f"{value.mean:.{digits}f}"
    return mean if value.std is None else f"{mean} ±{value.std:.{digits}f}".replace("±0.", "±.")
