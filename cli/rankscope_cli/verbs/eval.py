"""``rankscope eval``: MASE and WQL of models on a suite of data sets."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rankscope.errors import OptionError, OutputError, RankscopeError, unknown_choice
from rankscope_cli import options as opt
from rankscope_cli.benchmark_tables import show_fev, show_gift
from rankscope_cli.exits import say
from rankscope_cli.finished import FEV, GIFT, check_finished, data_sets, leave_finished, result_files
from rankscope_cli.output import TABLE_SUFFIXES, Output, refuse_input
from rankscope_cli.own_series import INPUT, own_suite, reading
from rankscope_cli.progress import progress_bar
from rankscope_cli.tables import MISSING, add_columns, plain_table, print_table, ratio_text

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope_eval import EvalReport
    from rankscope_eval.fev_suite import FevReport
    from rankscope_eval.gift_eval import GiftReport
    from rankscope_eval.report import EvalRow, EvalSummary, Slice


def run(
    models: opt.Models = None,
    baseline: Annotated[
        str | None,
        opt.value("--baseline", "MODEL", "Denominator of relative scores (default: seasonal-naive).", short="-b"),
    ] = None,
    suite: Annotated[
        str | None,
        opt.value(
            "--suite",
            "NAME|FILE",
            "embedded (default), chronos-in-domain, chronos-zero-shot, or a YAML file; fev:fev-bench, fev:fev-mini, "
            "fev:chronos-zero-shot, or fev:FILE for tasks of fev; gift-eval, with --data.",
        ),
    ] = None,
    data: Annotated[str | None, opt.value("--data", "DIR", "Folder of local data files.")] = None,
    tasks: Annotated[
        list[str] | None, opt.value("--tasks", "NAME,…", "Run only these tasks of the suite.", short="-t")
    ] = None,
    input: opt.Input = None,
    horizon: opt.InputHorizon = None,
    windows: opt.Windows = None,
    freq: opt.Freq = None,
    season_length: opt.SeasonLength = None,
    id_column: opt.IdColumn = None,
    time_column: opt.TimeColumn = None,
    target_column: opt.TargetColumn = None,
    margin: Annotated[
        float, opt.value("--margin", "SHARE", "Equivalence margin of the verdicts.", min=0, max=1)
    ] = 0.02,
    max_series: Annotated[
        int | None, opt.count("--max-series", "Use only the first N series of each data set.")
    ] = None,
    metrics: Annotated[
        list[str] | None,
        opt.value("--metrics", "NAME,…", "Print these of MASE, WQL, SQL, WAPE, MSIS, coverage (default: MASE,WQL)."),
    ] = None,
    num_samples: opt.Samples = 20,
    batch_size: opt.BatchSize = 32,
    engine: opt.EngineName = "local",
    jobs: Annotated[
        int, opt.value("--jobs", "N", "Concurrent models and data sets; 0: one per core.", opt.SPREAD, min=0)
    ] = 1,
    address: opt.Address = "",
    out: opt.Out = None,
    resume: Annotated[
        bool, opt.switch("--resume", "Resume an interrupted run with the same --out.", opt.OUTPUT)
    ] = False,
    force: opt.Force = False,
    json: opt.Json = False,
    device: opt.Device = "auto",
    dtype: opt.Dtype = None,
    runtime: opt.Runtime = "auto",
    revision: opt.Revision = None,
    seed: opt.Seed = 0,
    debug: opt.Debug = False,
) -> None:
    """Evaluate models on a suite (MASE, WQL) against a baseline.

    MODEL may also be naive, seasonal-naive, auto-ets or auto-theta. Lower scores are better. Relative scores are
    geometric means over data sets of score / baseline score, with 95 % bootstrap intervals over data sets and series.
    Verdicts: held within the margin, or at most the margin worse, by two one-sided tests (5 % each); better or worse,
    where the 95 % interval is beyond 1; or not shown.

    --input FILE --horizon STEPS evaluates on a file of series, in any form that forecast reads: the last STEPS values
    of each series, or that many of every one of --windows, are forecast from all values before them.

    Tasks of fev are read, windowed and scored by fev (pip install 'rankscope[fev]'): models that read covariates get
    them, and the CSV file is what its leaderboard reads.

    GIFT-Eval's configurations are --tasks such as ett1/H/short; --out DIR writes the two files of a submission for
    each model.

    Slices are parts of the data by horizon, frequency, season, length and intermittency; the three with the highest
    relative WQL are named.

    CSV output begins with the columns that chronos-forecasting publishes. With --out, finished rows are saved
    immediately; --resume continues after an interrupt or an error.

    Examples:
        rankscope eval
        rankscope eval small/ --baseline bundled --out scores.csv
        rankscope eval small/ --baseline bundled --input sales.csv --horizon 12 --windows 3
        rankscope eval small/ --baseline bundled-2 --suite fev:fev-mini --out scores.csv --resume
    """
    from rankscope.engine.pool import Engine
    from rankscope_eval import evaluate
    from rankscope_eval.suites import DEFAULT_SUITE

    if suite is not None and (suite == GIFT or suite.startswith(FEV)):
        plain = {"--max-series": max_series, "--metrics": metrics, "--engine": engine != "local", "--jobs": jobs != 1}
        _refuse_plain(plain)
    shown = _metrics(metrics)
    if suite == GIFT and data is None:
        raise OptionError("--suite gift-eval requires --data DIR, the folder of the benchmark's data sets.")
    read = reading(input is not None, INPUT, freq, id_column, time_column, target_column)
    replaced = {"suite": suite, "data": data, "tasks": tasks}
    series = own_suite(input, horizon, windows, season_length, read, replaced) or suite or DEFAULT_SUITE
    refuse_input(out, input)
    chosen = models or ["bundled"]
    reference = baseline or "seasonal-naive"
    every = list(dict.fromkeys([*chosen, reference]))
    named = {} if suite == GIFT else {"dtype": dtype}  # which a submission states
    opt.refuse_without_weights(every, {**named, "runtime": runtime})
    opt.refuse_without_weights(chosen, {"revision": revision})
    folder = _submission_folder(every, out, force or resume) if suite == GIFT and out is not None else None
    how = opt.forecasting(num_samples, batch_size, seed, device, dtype, runtime, revision)
    where = Engine(engine, jobs=jobs, address=address, device=how.device)
    kept = _kept(out, resume, force)
    again = kept is not None and resume and kept.exists()
    places = None if folder is None else [folder / _folder_name(model) for model in every]
    if resume and out is not None and not again and (done := result_files(Path(out), places)):
        settings: dict[str, Any] = {"baseline": reference, "seed": seed, "num_samples": num_samples}
        settings |= {"batch_size": batch_size, "max_series": max_series}
        settings |= {"dtype": dtype, "runtime": runtime, "revision": revision, "margin": margin}
        check_finished(out, done, every, data_sets(series, data, opt.words(tasks), max_series), settings)
        leave_finished(out, json)
        return
    common: dict[str, Any] = {
        "data": data,
        "tasks": opt.words(tasks),
        "baseline": baseline,
        "margin": margin,
        "kept": kept,
        "resume": resume,
    }
    report: EvalReport | FevReport | GiftReport
    show: Callable[[Any, Console], None] = partial(show_eval, metrics=shown)
    with Output(json, None if folder else out, force or again, signed=True) as output:
        with _mentioned(kept), progress_bar("opening the model") as progress:
            if suite is not None and suite.startswith(FEV):
                from rankscope_eval.fev_suite import evaluate_fev

                show = show_fev
                report = evaluate_fev(chosen, suite.removeprefix(FEV), how, progress=progress, **common)
            elif suite == GIFT:
                show = show_gift
                from rankscope_eval.gift_eval import evaluate_gift

                report = evaluate_gift(chosen, how=how, progress=progress, **common)
            else:
                report = evaluate(chosen, series, how, max_series=max_series, engine=where, progress=progress, **common)
        output.deliver(
            report,
            partial(show, report),
            also=lambda: _written(report, folder, dtype, kept),
        )


def _refuse_plain(options: Mapping[str, object]) -> None:
    """Refuse options of rankscope's plain suites, which tasks of fev and GIFT-Eval do not have.

    Raises:
        OptionError: one is given.
    """
    given = next((name for name, value in options.items() if value), None)
    if given is not None:
        raise OptionError(f"{given} is for suites of rankscope, and neither for fev nor for GIFT-Eval.")


def _metrics(names: Sequence[str] | None) -> tuple[str, ...]:
    """Parse the metrics to print.

    Raises:
        OptionError: there is no such metric.
    """
    from rankscope_eval.report import METRICS

    known = {name.lower(): name for name in METRICS}
    chosen = opt.words(names) or ("MASE", "WQL")
    for name in chosen:
        if name.lower() not in known:
            raise OptionError(unknown_choice("--metrics", name, METRICS))
    return tuple(dict.fromkeys(known[name.lower()] for name in chosen))


def _submission_folder(models: Sequence[str], out: str, replace: bool) -> Path | None:
    """Return the folder of submissions that ``--out`` names, or None for a table.

    Raises:
        OutputError: it is a file, or holds something and is not to be replaced.
        OptionError: two models would have one folder in it.
    """
    folder = Path(out)
    if folder.suffix.lower() in TABLE_SUFFIXES:
        return None
    if folder.is_file():
        raise OutputError(f"{out} is a file: give a folder for submissions, or a table (.csv, .parquet, .json).")
    if folder.is_dir() and any(folder.iterdir()) and not replace:
        raise OutputError(f"{out} exists and is not empty: use --force to write into it.")
    names = [_folder_name(model) for model in models]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise OptionError(f"two models would be written to {folder / twice}: evaluate them one after the other.")
    return folder


def _folder_name(model: str) -> str:
    """Name of a model's folder among submissions."""
    return Path(model.rstrip("/")).name


def _written(report: Any, folder: Path | None, dtype: str | None, kept: Path | None) -> list[Path]:
    """Write submissions, if any, and remove the rows kept until now."""
    files = [] if folder is None else _write_submissions(report, folder, dtype)
    if kept is not None:
        shutil.rmtree(kept)
    return files


def _write_submissions(report: Any, folder: Path, dtype: str | None) -> list[Path]:
    """Write a folder per model with the two files of a submission to GIFT-Eval."""
    from rankscope_eval.gift_eval.report import whole_or_added, write_submission

    config = {} if dtype is None else {"model_dtype": dtype}
    names = {row.model: _folder_name(row.model) for row in report.rows}
    with whole_or_added(folder) as place:
        for model, name in names.items():
            write_submission(report, model, place / name, config)
    return [folder / name for name in names.values()]


def _kept(out: str | None, resume: bool, force: bool) -> Path | None:
    """Return the folder of finished rows, next to the table, used until the table is written.

    Raises:
        OptionError: ``--resume`` without ``--out``.
        OutputError: rows of an unfinished run would be overwritten.
    """
    if out is None:
        if resume:
            raise OptionError("--resume requires --out FILE.")
        return None
    from rankscope.io.atomic import refuse_workplace
    from rankscope_eval.kept import kept_rows

    refuse_workplace(out)
    folder = Path(out).with_name(f".{Path(out).name}.rows")
    kept_rows(folder).check(resume, force)
    return folder


@contextlib.contextmanager
def _mentioned(kept: Path | None) -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, RankscopeError):
        if kept is not None and kept.exists():
            say(f"finished rows are kept in {kept}: rerun with --resume to continue.")
        raise


def show_eval(report: EvalReport, console: Console, metrics: Sequence[str] = ("MASE", "WQL")) -> None:
    """Print relative scores, worst slices, scores by data set and model, and skipped data sets."""
    _show_summary(report, console)
    console.print()
    _show_rows(report, console, metrics)
    for skipped in report.skipped:
        console.print(f"skipped {skipped.benchmark}/{skipped.dataset}: {skipped.reason}")
    for row in report.rows:
        if row.fallbacks:
            console.print(
                f"{row.model} failed to fit in {row.fallbacks} of {row.windows} windows of {row.dataset}: "
                "replaced by seasonal-naive."
            )
    for row in {row.key: row for row in report.rows}.values():
        if row.unscaled:
            console.print(
                f"{row.unscaled} of {row.windows} windows of {row.dataset} do not count in MASE: "
                "the values before them are constant (or there are none: then the window counts in no score)."
            )


def _show_rows(report: EvalReport, console: Console, metrics: Sequence[str]) -> None:
    cut = f", first {report.max_series} series of each" if report.max_series else ""
    console.print(f"suite {report.suite}{cut}, seed {report.seed}", style="bold")
    # Published scores cover all series.
    published = (
        tuple(metrics) == ("MASE", "WQL") and not cut and any(row.published_MASE is not None for row in report.rows)
    )
    table = plain_table()
    sizes = ["MASE", "WQL", "published", "WQL"] if published else ["series", "steps", *metrics]
    add_columns(table, ["model", "data set", *sizes], left=2, folds=True)
    last: EvalRow | None = None
    for row in report.rows:
        same = last is not None and (last.benchmark, last.dataset) == (row.benchmark, row.dataset)
        if last is not None and not same:
            table.add_section()
        scores = [ratio_text(getattr(row, name), 4) for name in metrics]
        if published:
            cells = [*scores, _published(row.published_MASE), _published(row.published_WQL)]
        else:
            steps = ["", ""] if same else [str(row.series), str(row.prediction_length)]
            cells = [*steps, *scores]
        table.add_row(row.model, "" if same else row.dataset, *cells)
        last = row
    print_table(table, console)


def _show_summary(report: EvalReport, console: Console) -> None:
    from rankscope_eval.relative import FEWEST

    console.print(f"relative to {report.baseline}: geometric means, lower is better", style="bold")
    table = plain_table()
    add_columns(table, ["model", "benchmark", "", "ratio", "95 %", "wins", "verdict"], left=3, folds=True)
    table.columns[-1].justify = "left"
    for row in report.summary:
        sets = f"{row.benchmark} ({row.datasets})"
        for metric in ("WQL", "MASE"):
            ratio, ends, wins, verdict = (getattr(row, name.format(metric)) for name in _MEASURED)
            first = [row.model, sets] if metric == "WQL" else ["", ""]
            won = ratio_text(wins if row.datasets > 1 else None)
            cells = [ratio_text(ratio, 3), _interval(ends), won, str(verdict or MISSING)]
            table.add_row(*first, metric, *cells)
    print_table(table, console)
    for line in (*_legend(report.summary), *_worst_slices(report.slices)):
        console.print(line)
    if any(row.WQL_interval is None and 0 < row.datasets < FEWEST for row in report.summary):
        console.print(f"–: an interval needs {FEWEST} data sets, or {FEWEST} series with an error of a single one")
    for row in report.summary:
        if row.left_out:
            names = ", ".join(row.left_out)
            console.print(f"left out of {row.model} on {row.benchmark}: {names} (no usable ratio).")


_MEASURED = ("relative_{}", "{}_interval", "{}_win_rate", "{}_verdict")


def _legend(summary: Sequence[EvalSummary]) -> Iterator[str]:
    """Explain intervals and verdicts, and name the worst data sets."""
    from rankscope_eval.verdict import BETTER, NOT_SHOWN, WORSE

    verdicts = [one for row in summary for one in (row.WQL_verdict, row.MASE_verdict) if one is not None]
    if any(row.MASE_interval or row.WQL_interval for row in summary):
        yield "95 %: bootstrap over data sets and series"
        if verdicts:
            margin = verdicts[0].margin
            yield f"held: 90 % interval within {1 / (1 + margin):.3f}–{1 + margin:.3f}, two one-sided tests at 5 %"
        if any(one.word in (BETTER, WORSE) for one in verdicts):
            yield "better, worse: the 95 % interval is beyond 1"
        if any(one.word == NOT_SHOWN for one in verdicts):
            yield "not shown: the interval is too wide; more series or data sets narrow it"
    if any((row.WQL_win_rate is not None and row.datasets > 1) for row in summary):
        yield "wins: share of data sets with a lower score, ties half"
    for row in summary:
        worst = [
            f"{metric} {ratio_text(verdict.worst_ratio, 3)} on {verdict.worst}{' (shown worse)' * verdict.worse_there}"
            for metric, verdict in (("WQL", row.WQL_verdict), ("MASE", row.MASE_verdict))
            if row.datasets > 1 and verdict is not None and verdict.worst is not None
        ]
        if worst:
            yield f"worst of {row.model} on {row.benchmark}: {', '.join(worst)}"


def _worst_slices(slices: Sequence[Slice]) -> Iterator[str]:
    """Name the slices that have an interval, a line for each model."""
    by_model: dict[str, list[str]] = {}
    for one in slices:
        if one.WQL_interval is not None:
            text = f"{one.by} {one.part} {one.WQL:.3f} ({_interval(one.WQL_interval)})"
            by_model.setdefault(one.model, []).append(text)
    if by_model:
        yield "slices: parts of the data, with simultaneous 95 % intervals"
    for model, texts in by_model.items():
        yield f"worst slices of {model} in WQL: {', '.join(texts)}"


def _interval(ends: tuple[float, float] | None) -> str:
    return MISSING if ends is None else f"{ends[0]:.3f}–{ends[1]:.3f}"


def _published(value: float | None) -> str:
    return MISSING if value is None else f"{value:.4f}"
