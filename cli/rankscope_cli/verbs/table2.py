"""``rankscope table2``: compare compression methods across sizes of the attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope_cli import options as opt
from rankscope_cli.exits import FAILED, say
from rankscope_cli.output import Output
from rankscope_cli.own_series import own_suite, reading, refuse
from rankscope_cli.progress import RESUMES, progress_lines
from rankscope_cli.tables import add_columns, plain_table, print_table
from rankscope_eval.numbers import MISSING, interval, ratio

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope.measure.tradeoff import Measures, Table2Report, Table2Row
    from rankscope_eval.tradeoff import Grid


def run(
    model: opt.Model = None,
    *,
    ratios: Annotated[
        list[str] | None,
        opt.value(
            "--ratios",
            "R,…",
            "Shares of the attention matrices' parameters (default: 0.5,0.25,0.15,0.1,0.075,0.05).",
            short="-r",
        ),
    ] = None,
    methods: Annotated[
        list[str] | None,
        opt.value(
            "--methods",
            "NAME,…",
            "Methods of compress that cut attention; append +healed to heal afterwards (default: svd,asvd,whitened,"
            "theorem3,joint).",
            short="-m",
        ),
    ] = None,
    allocations: Annotated[
        list[str] | None,
        opt.value("--allocations", "NAME,…", "Rank allocations (default: each method's own)."),
    ] = None,
    seeds: Annotated[
        list[str] | None, opt.value("--seeds", "S,…", "Seeds for calibration and healing (default: 0,1,2).")
    ] = None,
    heal_steps: Annotated[
        int | None, opt.count("--heal-steps", "Training steps of +healed methods, 32 series each (default: 300).")
    ] = None,
    calibration: Annotated[
        str | None,
        opt.value(
            "--calibration",
            "SET",
            "Calibration data: mixture:N, kernelsynth:N or a file (default: mixture:256, or mixture:1024 for patch "
            "models); text:N windows of --text for text models (default: text:256).",
            short="-c",
        ),
    ] = None,
    suite: Annotated[
        str | None, opt.value("--suite", "NAME|FILE", "Evaluation suite (default: embedded).", opt.SCORES)
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
    num_samples: opt.Samples = 20,
    sampling_seeds: Annotated[
        int, opt.count("--sampling-seeds", "Seeds to draw sample paths with; losses are averaged.", opt.SCORES)
    ] = 1,
    margin: Annotated[
        float,
        opt.value("--margin", "SHARE", "Equivalence margin of the verdicts.", opt.SCORES, min=0, max=1),
    ] = 0.02,
    overlap_series: Annotated[
        int, opt.count("--overlap-series", "Synthetic series for comparing outputs with the original's.", opt.SCORES)
    ] = 1000,
    text: Annotated[
        str | None, opt.value("--text", "FILE", "Text (or token ids) for scoring a text model.", opt.SCORES)
    ] = None,
    out: Annotated[str, opt.out_folder("Output folder, new or existing.")],
    resume: Annotated[bool, opt.switch("--resume", "Resume the table in DIR; finished points are kept.")] = False,
    force: opt.Force = False,
    json: opt.Json = False,
    batch_size: opt.BatchSize = 32,
    device: opt.Device = "auto",
    dtype: opt.ComputeDtype = None,
    runtime: opt.Runtime = "stock",
    revision: opt.Revision = None,
    seed: opt.Seed = 0,
    debug: opt.Debug = False,
) -> None:
    """Compare compression methods across sizes of the attention.

    The paper's Table 2 for your model: ratios are shares of the attention matrices' parameters, as in compress
    --attention-ratio. Each point is compressed, scored relative to the original, compared with it
    token by token (or quantile by quantile), timed against it in interleaved rounds, and deleted. DIR receives
    table2.json, .csv, .md, .png and .svg. --resume continues an interrupted run and can add ratios, methods or seeds.
    Scores have 95 % intervals over data sets and series, and verdicts as those of rankscope eval.
    METHOD+healed runs rankscope heal after compression. Text models are scored by log-perplexity on the second half of
    a text.

    Examples:
        rankscope table2 --out table/
        rankscope table2 bundled-bolt -r 0.5,0.15 -m svd,joint --max-series 20 --out quick/
        rankscope table2 bundled-bolt -r 0.075,0.05 -m joint,joint+healed --heal-steps 150 --out healed/
        rankscope table2 small-t5/ --text book.txt --out text/ --resume
    """
    from rankscope.checkpoints import open_checkpoint
    from rankscope.compress.calibration.sources import names_file
    from rankscope.io.run_store import refuse_both
    from rankscope_eval.forecasters import Forecasting
    from rankscope_eval.tradeoff import run_table2
    from rankscope_eval.tradeoff.scorers import TradeoffOptions

    refuse_both(resume, force)
    file = input is not None or names_file(calibration)
    read = reading(file, "--input FILE or --calibration FILE", freq, id_column, time_column, target_column)
    own = own_suite(input, horizon, windows, season_length, read, {"suite": suite, "data": data})
    grid = _grid(ratios, methods, allocations, seeds, heal_steps)
    options = TradeoffOptions(
        suite=own or suite,
        data=data,
        max_series=max_series,
        how=Forecasting(num_samples, batch_size, seed, device, dtype, runtime),
        sampling_seeds=sampling_seeds,
        margin=margin,
        overlap_series=overlap_series,
        calibration=calibration,
        **read,
        text=text,
    )
    with Output(json) as output:
        with progress_lines("opening the model", stopped=RESUMES, begun=out) as progress:
            source = open_checkpoint(model, revision=revision)
            report = run_table2(source, out, grid=grid, options=options, resume=resume, force=force, progress=progress)
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
    """Build the grid from command-line options.

    Raises:
        OptionError: a value is unknown or out of range.
    """
    from rankscope_eval.tradeoff import HEAL_STEPS, METHODS, RATIOS, SEEDS, Grid
    from rankscope_eval.tradeoff.run import HEALED

    chosen = METHODS if methods is None else opt.words(methods) or ()
    if not any(name.endswith(HEALED) for name in chosen):
        refuse({"heal_steps": heal_steps}, "a +healed method in --methods")
    return Grid(
        opt.numbers("ratios", ratios, RATIOS),
        chosen,
        opt.words(allocations) or (),
        opt.whole_numbers("seeds", seeds, SEEDS),
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
    """Print one row per ratio, method and allocation, and the reasons for missing points."""
    judged = bool(report.judgements)
    what = "geometric means over data sets" if judged else "medians over seeds (min–max)"
    console.print(f"{report.model}: relative to the original, {what}", style="bold")
    table = plain_table()
    shown = [name for name in _COLUMNS if any(getattr(row.median, name) is not None for row in report.rows)]
    if judged:
        add_columns(table, ["method", "verdict", "WQL", "95 %", "MASE", "95 %", "worst set"], left=2)
        table.columns[-1].justify = "left"
    else:
        add_columns(table, ["method", "allocation", "size", *(_COLUMNS[name] for name in shown)], left=2)
    last: Table2Row | None = None
    for row in report.rows:
        if last is None or last.ratio != row.ratio:
            table.add_section()
            table.add_row(f"ratio {row.ratio:g}")
        if judged:
            table.add_row(f"  {_method(row, report.rows)}", *_judged(row))
        else:
            cells = [_cell(row, name) for name in shown]
            size = ratio(row.median.reached)
            table.add_row(f"  {_method(row, [])}", row.allocation, size, *cells)
        last = row
    print_table(table, console)
    for line in _legend(report):
        console.print(line)


def _method(row: Table2Row, rows: Sequence[Table2Row]) -> str:
    """Name a row: with the allocation where one of ``rows`` of this method has another, and steps of healing."""
    several = len({one.allocation for one in rows if one.method == row.method and one.judgement is not None}) > 1
    words = [row.method, *[row.allocation] * several, *([] if row.heal_steps is None else [str(row.heal_steps)])]
    return " ".join(words)


def _judged(row: Table2Row) -> list[str]:
    """Less favourable of the two verdicts, scores, and the largest ratio of a data set, with its name."""
    if row.judgement is None:
        return [row.state]
    one = row.judgement
    order = ("held", "better", "no worse", "not shown", "worse")
    word = max((one.WQL_verdict.word, one.MASE_verdict.word), key=order.index)
    spans = [interval(ends, 2) for ends in (one.WQL_interval, one.MASE_interval)]
    worst = max((one.WQL_verdict, one.MASE_verdict), key=lambda verdict: verdict.worst_ratio or 0.0)
    scores = [ratio(one.relative_WQL), spans[0], ratio(one.relative_MASE), spans[1]]
    return [word, *scores, f"{ratio(worst.worst_ratio, 2)} {worst.worst or MISSING}"]


def _legend(report: Table2Report) -> Iterator[str]:
    rows = report.rows
    yield "ratio: share of the attention matrices' parameters, as in compress --attention-ratio"
    if report.judgements:
        margin = report.judgements[0].WQL_verdict.margin
        yield "95 %: bootstrap over data sets and series; worst set: by the larger ratio of the two"
        yield f"verdict: less favourable of the two; held: within {100 * margin:g} % by two one-sided tests at 5 %"
        yield "better, worse: the 95 % interval is beyond 1"
    if any(row.heal_steps for row in rows):
        yield "+healed N: distilled from the original for N steps after compression"
    yield from dict.fromkeys(f"{row.method} at {row.ratio:g}: {row.reason}" for row in rows if row.reason)


def _cell(row: Table2Row, name: str) -> str:
    middle = _text(row.median, name)
    if name not in _SPREAD or middle == MISSING:
        return middle
    low, high = _text(row.low, name), _text(row.high, name)
    return middle if low == high else f"{middle} ({low}–{high})"


def _text(measures: Measures, name: str) -> str:
    value = getattr(measures, name)
    return ratio(value, 2 if name == "time_ratio" or (value is not None and value >= 10) else 3)
