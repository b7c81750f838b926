"""``rankscope lab slt``: sparse-layered transformers, PatchTST-like and N-BEATS-like models, and baselines."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from rankscope.errors import OptionError
from rankscope_cli import options as opt
from rankscope_cli.exits import say
from rankscope_cli.output import Output, write_tables
from rankscope_cli.progress import GOES_ON, progress_lines
from rankscope_cli.tables import add_columns, plain_table, print_table
from rankscope_eval.numbers import MISSING, ratio, significant

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
    data: Annotated[str, opt.value("--data", "DIR", "Folder with the data sets, one CSV file each.")],
    out: Annotated[str, opt.out_folder("Folder of runs, new or existing.")],
    datasets: Annotated[
        list[str] | None, opt.value("--datasets", "NAME,…", "Data sets (default: ETTh1,ETTh2).")
    ] = None,
    models: Annotated[
        list[str] | None,
        opt.value("--models", "NAME,…", "Models: slt patchtst nbeats dlinear naive (default: these), or variants."),
    ] = None,
    protocol: Annotated[
        Protocol, opt.choice("--protocol", Protocol, "Evaluation protocol: split, look-back, weight selection.")
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
    revin: Annotated[bool, opt.switch("--revin", "Also run every model with instance normalisation (RevIN).")] = False,
    seeds: opt.Seeds = None,
    epochs: Annotated[int | None, opt.count("--epochs", "Epochs per run (default: 10).")] = None,
    ignore_times: Annotated[
        bool, opt.switch("--ignore-times", "Accept repeated or missing timestamps in column date.")
    ] = False,
    horizon: Annotated[int, opt.count("--horizon", "Forecast horizon in steps.")] = 96,
    lookback: Annotated[int, opt.count("--lookback", "Look-back window in steps.")] = 512,
    quick: Annotated[
        bool, opt.switch("--quick", "Smoke test: 1 seed, 1 epoch, first data set; about 5 minutes.")
    ] = False,
    engine: opt.EngineName = "local",
    jobs: Annotated[int, opt.value("--jobs", "N", "Concurrent runs; 0: one per core.", opt.SPREAD, min=0)] = 1,
    address: opt.Address = "",
    precision: opt.Precision = "float32",
    json: opt.Json = False,
    device: opt.Device = "auto",
    debug: opt.Debug = False,
) -> None:
    """Sparse-layered transformers, PatchTST and N-BEATS on ETT.

    Errors and times are printed next to published ones. Each run is one JSON file in DIR, stored with the tested
    weights; rerun the same command to resume. Diverged runs are counted but excluded from means. DIR/slt.json and
    slt.csv hold the tables of the last command. Variants: slt-additive, patchtst-mult, slt-middle, slt-bottom,
    slt-offset, projections, head.

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
        raise OptionError("--quick sets 1 seed and 1 epoch; leave out --seeds and --epochs, or --quick.")
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
        say("--quick is not the published protocol, which uses 10 epochs and several seeds.")
    for name in report.diverged:
        say(f"diverged: {name}: excluded from means.")


def _run(specs: list[RunSpec], data: str, out: str, where: Engine, ignore_times: bool) -> list[RunResult]:
    from rankscope_lab.slt import runs

    with progress_lines("reading tables", stopped=GOES_ON) as progress:
        return runs.run_specs(specs, data, out, engine=where, ignore_times=ignore_times, progress=progress)


ERRORS = "test error, scaled units, mean ± std of n seeds"
TOLERANCES = {
    "published twice": "within: no farther apart than the two values published for the same model",
    "2 std of ours": "within: at most two standard deviations over our seeds",
}
BEST = "best val.: with the weights of the lowest validation error, under every protocol"
COST = "Cost: parameters, training and inference time"
RATIOS = "SLT against PatchTST-like (runs not interleaved)"


def show_slt(report: SltReport, console: Console) -> None:
    """Print errors next to published ones, then cost, ratios and ablations."""
    for place in dict.fromkeys((row.dataset, row.protocol) for row in report.rows):
        _errors(*place, [row for row in report.rows if (row.dataset, row.protocol) == place], console)
    _cost(report.rows, console)
    if report.speed_ups:
        _ratios(report.speed_ups, console)
    for title in dict.fromkeys(one.title for one in report.comparisons):
        _compared(title, [one for one in report.comparisons if one.title == title], console)
    if report.diverged:
        console.print(f"{len(report.diverged)} of {report.runs} runs diverged and are excluded from means.")


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
    console.print(BEST, style="dim")
    for basis in dict.fromkeys(row.verdict.basis for row in rows if row.verdict and row.verdict.basis):
        console.print(TOLERANCES[basis], style="dim")
    console.print()


def _cost(rows: tuple[Row, ...], console: Console) -> None:
    table = plain_table(COST)
    add_columns(table, ["table", "protocol", "model", "parameters", "s/epoch", "windows/s"], left=3)
    for row in rows:
        seconds = significant(row.seconds_per_epoch) if row.parameters else MISSING
        rate = f"{row.windows_per_second:,.0f}" if row.mse.n else MISSING
        table.add_row(row.dataset, row.protocol, row.model, f"{row.parameters:,}", seconds, rate)
    print_table(table, console)
    for machine in dict.fromkeys(row.machine for row in rows):
        console.print(f"on {machine}{_rounded(rows)}", style="dim")


def _rounded(rows: Sequence[Row]) -> str:
    """Return the precisions other than float32, as a title suffix."""
    others = {row.precision for row in rows if row.parameters} - {"float32"}
    return "".join(f", {name}" for name in sorted(others))


def _ratios(ratios: tuple[SpeedUp, ...], console: Console) -> None:
    console.print()
    table = plain_table(RATIOS)
    add_columns(table, ["table", "protocol", "training ×", "inference ×", "publ.", "gain %", "publ."], left=2)
    for one in ratios:
        gains = [MISSING if value is None else f"{100 * value:.1f}" for value in (one.gain, one.published_gain)]
        speeds = [ratio(value, 2) for value in (one.training, one.inference, one.published)]
        table.add_row(one.dataset, one.protocol, *speeds, *gains)
    print_table(table, console)


def _compared(title: str, found: list[Comparison], console: Console) -> None:
    console.print()
    console.print(f"{title}: MSE, first − second", style="bold")
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
            significant(one.mse.p, 2),
            f"{one.mse.lower}/{pairs}",
        )
    print_table(table, console)
    if any(" & " in one.first for one in found):
        console.print("two models in a cell: the mean of their errors", style="dim")


def _spread(value: Spread, digits: int = 4, sign: bool = False) -> str:
    if not value.n:
        return MISSING
    mean = f"{value.mean:+.{digits}f}" if sign else f"{value.mean:.{digits}f}"
    return mean if value.std is None else f"{mean} ±{value.std:.{digits}f}".replace("±0.", "±.")
