"""``rankscope lab encoders``: reproduce the tables of the encoder audit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rankscope.errors import OptionError
from rankscope_cli import options as opt
from rankscope_cli.output import Output, write_tables
from rankscope_cli.progress import GOES_ON, progress_lines
from rankscope_cli.tables import add_columns, plain_table, print_table
from rankscope_eval.numbers import MISSING

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope.engine.pool import Engine
    from rankscope_lab.encoders.findings import Finding, FindingsTable
    from rankscope_lab.encoders.published import Published
    from rankscope_lab.encoders.report import AuditReport
    from rankscope_lab.encoders.run_spec import RunResult, RunSpec
    from rankscope_lab.encoders.tables.compute import PairedRow, PairedTable
    from rankscope_lab.encoders.tables.spec import Protocol, Row, TableResult
    from rankscope_lab.encoders.training import ComputeOptions


QUICK_SEEDS, QUICK_EPOCHS = 2, 40
REPORT = "audit"
_RUNS = "Runs"


def run(
    tables: Annotated[
        list[str] | None,
        opt.argument("TABLE", "1 to 13, bias, large, paired, findings, or all (default: 1)."),
    ] = None,
    *,
    out: Annotated[str, opt.out_folder("Folder of runs, new or existing.")],
    seeds: Annotated[int | None, opt.count("--seeds", "Runs (seeds) per setting (default: 20).", _RUNS)] = None,
    epochs: Annotated[int | None, opt.count("--epochs", "Epochs per run (default: 300).", _RUNS)] = None,
    encoders: Annotated[list[str] | None, opt.value("--encoders", "NAME,…", "Run only these encoders.", _RUNS)] = None,
    quick: Annotated[bool, opt.switch("--quick", "Quick run: 2 seeds, 40 epochs, without ci and cat.", _RUNS)] = False,
    show: Annotated[bool, opt.switch("--show", "Show tables of existing runs without training.", _RUNS)] = False,
    data: Annotated[str | None, opt.value("--data", "FILE", "Path of ETTh1.csv, for Table 13.", _RUNS)] = None,
    jobs: Annotated[
        int | None,
        opt.value("--jobs", "N", "Concurrent runs; 0: one per core (default on a CPU).", opt.SPREAD, min=0),
    ] = None,
    engine: opt.EngineName = "local",
    address: opt.Address = "",
    stack: Annotated[
        int,
        opt.value("--stack", "N", "Seeds trained in one batch; 0: 16 on a GPU, 1 on a CPU.", opt.SPREAD, min=0),
    ] = 0,
    precision: opt.Precision = "float32",
    stop: Annotated[
        int,
        opt.value(
            "--stop",
            "N",
            "Stop every run after epoch N, with the learning-rate schedule of the full run; 0: never.",
            _RUNS,
            min=0,
        ),
    ] = 0,
    force: Annotated[bool, opt.switch("--force", "Retrain existing runs.", opt.OUTPUT)] = False,
    json: opt.Json = False,
    device: opt.Device = "auto",
    debug: opt.Debug = False,
) -> None:
    """Multichannel encoder audit: eight encoders, published tables.

    Trains the runs that the requested tables need and prints results next to published ones. Each run is one file in
    DIR, shared between tables; rerun the same command to resume. The verdict column tells whether a mean lies within
    one or two published standard deviations, inside a published interval, or outside. Means that
    differ from published ones by Welch's t-test are listed, with p adjusted by Holm's method over all numbers shown.
    Diverged runs are counted but excluded from means. The tables are saved as DIR/audit.json and .csv.

    Examples:
        rankscope lab encoders --quick --out audit/
        rankscope lab encoders 1 paired findings --seeds 5 --out audit/
        rankscope lab encoders 13 --data ETTh1.csv --out audit/
        rankscope lab encoders all --show --out audit/ --json
    """
    import torch

    from rankscope.engine.device import resolve_device
    from rankscope.engine.pool import Engine
    from rankscope_lab.encoders.data import etth1_data
    from rankscope_lab.encoders.report import audit_report, audit_runs, needs_etth1
    from rankscope_lab.encoders.training import ComputeOptions

    asked = _asked(tables, seeds, epochs, encoders, quick)
    if show and force:
        raise OptionError("--show and --force are mutually exclusive.")
    specs = audit_runs(asked)
    if data is None and not show and needs_etth1(_unmade(out, specs, force)):
        raise OptionError("these tables need ETTh1: add --data PATH/ETTh1.csv, or --show for existing runs.")
    named = "cuda" if device.startswith("cuda") else "cpu"
    place = named if engine == "ray" else resolve_device(device)  # with Ray, devices belong to the cluster
    if jobs is None:  # one per core on a CPU; a GPU is shared by stacking seeds
        jobs = 0 if engine == "ray" or place == "cpu" else 1
    how, where = ComputeOptions(torch.device(place), precision, stop=stop), Engine(engine, jobs, address)
    etth1 = None if data is None else etth1_data(data)
    with Output(json) as output:
        results = _stored(out, specs) if show else _trained(specs, out, how, where, data, stack, force)
        report = audit_report(asked, results, etth1)
        written = partial(write_tables, report, out, REPORT)
        output.deliver(report, lambda console: show_audit(report, console), also=written)


def _asked(
    tables: list[str] | None, seeds: int | None, epochs: int | None, encoders: list[str] | None, quick: bool
) -> Protocol:
    from rankscope_lab.encoders.report import protocol
    from rankscope_lab.encoders.run_spec import ARCHITECTURES, ENCODERS, EPOCHS
    from rankscope_lab.encoders.tables.spec import PUBLISHED_SEEDS

    chosen = opt.words(encoders)
    if quick and chosen is None:
        chosen = tuple(name for name in ENCODERS if name not in ARCHITECTURES)
    return protocol(
        opt.words(tables) or ("1",),
        seeds or (QUICK_SEEDS if quick else PUBLISHED_SEEDS),
        epochs or (QUICK_EPOCHS if quick else EPOCHS),
        chosen,
    )


def _unmade(out: str, specs: list[RunSpec], force: bool) -> list[RunSpec]:
    """Return the runs that still have to be trained."""
    from rankscope_lab.encoders.runs import stored_runs

    there = set() if force else {run.spec for run in stored_runs(out, specs)}
    return [spec for spec in specs if spec not in there]


def _stored(out: str, specs: list[RunSpec]) -> list[RunResult]:
    from rankscope_lab.encoders.runs import stored_runs

    if not Path(out).is_dir():
        raise OptionError(f"no such folder: {out}; leave out --show to train the runs.")
    return stored_runs(out, specs)


def _trained(
    specs: list[RunSpec], out: str, how: ComputeOptions, engine: Engine, data: str | None, stack: int, force: bool
) -> list[RunResult]:
    from rankscope_lab.encoders import runs

    goes_on = f"{GOES_ON}, without --force" if force else GOES_ON
    with progress_lines("preparing", stopped=goes_on) as progress:
        return runs.run_specs(
            specs, out, how=how, engine=engine, etth1=data, stack=stack, force=force, progress=progress
        )


PAPER = "paper"
"""Source of a published test; all others are computed from the released runs."""
_TOPICS = {
    "zeros": "Effect of the seven leading zero outcomes on NLL and accuracy (C=4)",
    "positions": "Scale and position of positional encodings (C=4); gain: NLL below linear",
    "baselines": "ETTh1 baselines without a transformer",
    "angles": "Angles between channel directions, compared with random ones",
}


def show_audit(report: AuditReport, console: Console) -> None:
    """Print all tables and a summary of the runs."""
    for table in report.tables:
        _show_table(table, console)
    if report.paired is not None:
        _show_paired(report.paired, console)
    if report.findings is not None:
        _show_findings(report.findings, console)
    diverged = f", {report.diverged} diverged" if report.diverged else ""
    console.print(f"{report.runs} of {report.needed} runs{diverged}")
    _show_agreement(report, console)
    if report.warning:
        console.print(report.warning, style="bold")


def _show_agreement(report: AuditReport, console: Console) -> None:
    """Print how many numbers agree, constants and repeats left out, and what Welch's tests find."""
    from rankscope_lab.statistics import ALPHA

    judged = [row.verdict for row in report.counted]
    if not judged:
        return
    counts = {name: judged.count(name) for name in dict.fromkeys(judged)}
    said = ", ".join(f"{count} × {name}" for name, count in counts.items())
    console.print(f"{len(judged)} numbers without constants and repeats: {said}")
    tested = [row for row in report.counted if row.p is not None]
    if not tested:
        return
    apart = [row for row in tested if row.p is not None and row.p < ALPHA]
    clear = sum(row.adjusted is not None and row.adjusted < ALPHA for row in apart)
    console.print(
        f"Welch's t-test on {len(tested)} of them: {len(apart)} differ at {ALPHA:g}, {clear} by Holm. "
        "Few seeds find only large differences."
    )
    if not apart:
        return
    table = plain_table()
    add_columns(table, ["", "", "", "diff.", "p", "Holm p"], left=3)
    for row in apart:
        table.add_row(
            row.setting, row.encoder, row.title, _signed(row.difference, row.digits), _p(row.p), _p(row.adjusted)
        )
    print_table(table, console)


def _show_table(result: TableResult, console: Console) -> None:
    named = f"Table {result.id}" if result.id.isdigit() else result.id
    console.print(f"{named}: {result.title}", style="bold")
    for title, rows in groupby(_by_measure(result.rows), key=lambda row: row.title):
        _show_rows(title, list(rows), console)
    if result.checks:
        held = ", ".join(f"{check.subject} {check.seeds}/{check.n}" for check in result.checks)
        console.print(f"Seeds with {result.checks[0].claim}, as published: {held}")
    _show_notes(result.notes, console)


def _by_measure(rows: Sequence[Row]) -> list[Row]:
    """Group rows by measure, keeping the order of measures and rows."""
    titles = list(dict.fromkeys(row.title for row in rows))
    return sorted(rows, key=lambda row: titles.index(row.title))


def _show_rows(title: str, rows: list[Row], console: Console) -> None:
    all_seeds = any(row.overall.n > row.summary.n for row in rows)
    table = plain_table(title=title)
    names = ["", "", "ours", "n", *(["all seeds"] if all_seeds else []), "printed", "diff.", ""]
    add_columns(table, names, left=2)
    shown = None
    for row in rows:
        overall = [_spread(row.overall.known, row.overall.std, row.digits)] if all_seeds else []
        table.add_row(
            "" if row.setting == shown else row.setting,
            row.encoder,
            _spread(row.summary.known, row.summary.std, row.digits),
            f"{row.summary.n}/{row.wanted}",
            *overall,
            _printed(row.published, row.digits),
            _signed(row.difference, row.digits),
            row.verdict,
        )
        shown = row.setting
    print_table(table, console)


def _spread(mean: float | None, std: float | None, digits: int) -> str:
    if mean is None:
        return MISSING
    return (
        f"{mean:,.{digits}f}" if std is None or (digits == 0 and not std) else f"{mean:,.{digits}f} ± {std:.{digits}f}"
    )


def _signed(value: float | None, digits: int) -> str:
    """Format a signed difference; values that round to zero get a plus.

    >>> _signed(-0.0001, 3), _signed(-0.25, 2)
    ('+0.000', '-0.25')
    """
    return MISSING if value is None else f"{round(value, digits) + 0.0:+,.{digits}f}"


def _printed(value: Published | None, digits: int) -> str:
    if value is None:
        return MISSING
    if value.std is None and value.interval is not None:
        low, high = value.interval
        return f"{value.mean:.{digits}f} [{low:.{digits}f},{high:.{digits}f}]"
    return _spread(value.mean, value.std, digits)


def _show_paired(result: PairedTable, console: Console) -> None:
    console.print("Paired tests by seed: NLL(worse) − NLL(better)", style="bold")
    table = plain_table()
    add_columns(table, ["better", "other", "ours", "p", "wins", "print", "p", "wins", "same"], left=2)
    settings = list(dict.fromkeys(row.published.setting for row in result.rows))
    shown = None
    for row in sorted(result.rows, key=lambda one: settings.index(one.published.setting)):
        printed = row.published
        if printed.setting != shown:
            shown = printed.setting
            table.add_row(f"{shown}:")
        table.add_row(
            printed.better,
            printed.other,
            *_measured(row),
            _signed(printed.difference, 3) + ("" if printed.stated == PAPER else "*"),
            _p(printed.p),
            MISSING if printed.wins is None else f"{printed.wins}/{printed.n}",
            {True: "yes", False: "no", None: ""}[row.agrees],
        )
    print_table(table, console)
    console.print("Same: at level 0.05 both find no difference, or one of the same sign.")
    if any(row.published.stated != PAPER for row in result.rows):
        console.print("*: not in the paper's text, computed from its released runs.")
    _show_notes(result.notes, console)


def _measured(row: PairedRow) -> tuple[str, str, str]:
    found = row.measured
    if found is None:
        return MISSING, MISSING, MISSING
    return _signed(found.difference.mean, 3), _p(found.p), f"{found.higher}/{found.difference.n}"


def _p(value: float | None) -> str:
    """Format a p-value in at most five characters.

    >>> _p(2.6e-06), _p(0.036), _p(None)
    ('3e-06', '0.036', '–')
    """
    if value is None:
        return MISSING
    return f"{value:.3f}" if value >= 0.001 else f"{value:.0e}"


def _show_findings(result: FindingsTable, console: Console) -> None:
    console.print("Findings, compared with the paper's", style="bold")
    for topic, rows in groupby(result.rows, key=lambda row: row.topic):
        console.print(_TOPICS[topic])
        _show_topic(list(rows), console)
    _show_notes(result.notes, console)
    console.print("Where the paper's text and its released runs differ:")
    for one in result.disagreements:
        console.print(f"- {one.about}: text: {one.paper}; runs: {one.released}.")


def _show_topic(rows: list[Finding], console: Console) -> None:
    table = plain_table()
    add_columns(table, ["", "", "ours", "n", "known", "p"], left=2)
    shown = None
    for row in rows:
        places = _places(row.mean if row.expected is None else row.expected)
        table.add_row(
            "" if row.quantity == shown else row.quantity,
            row.subject,
            _spread(row.mean, row.std, places),
            str(row.n) if row.n else "",
            "" if row.expected is None else f"{row.expected:,.{places}f}",
            _p(row.p) if row.p is not None else "",
        )
        shown = row.quantity
    print_table(table, console)


def _places(value: float | None) -> int:
    """Return the number of decimals: four, fewer for larger values.

    >>> _places(0.5), _places(52.3), _places(5120.0)
    (4, 2, 0)
    """
    size = abs(value or 0.0)
    return 0 if size >= 1000 else 2 if size >= 10 else 4


def _show_notes(notes: Sequence[str], console: Console) -> None:
    for note in notes:
        console.print(note)
    console.print()
