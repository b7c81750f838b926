"""``rankscope eval``: MASE and WQL of models on a suite of data sets."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rankscope.errors import OptionError, OutputError, RankscopeError, unknown_choice
from rankscope.io import codec
from rankscope_cli import options as opt
from rankscope_cli.benchmark_tables import show_fev, show_gift
from rankscope_cli.eval_tables import show_eval
from rankscope_cli.exits import say, warned
from rankscope_cli.finished import (
    FEV,
    GIFT,
    check_finished,
    check_unchanged,
    data_sets,
    leave_finished,
    result_files,
)
from rankscope_cli.output import TABLE_SUFFIXES, Output, refuse_data, refuse_input
from rankscope_cli.own_series import INPUT, own_suite, reading
from rankscope_cli.progress import progress_bar

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope_eval.fev_suite import FevReport
    from rankscope_eval.gift_eval import GiftReport


def run(
    models: opt.Models = None,
    baseline: Annotated[
        str | None,
        opt.value("--baseline", "MODEL", "Model to compare with (default: seasonal-naive).", short="-b"),
    ] = None,
    suite: Annotated[
        str | None,
        opt.value(
            "--suite",
            "NAME|FILE",
            "embedded (default), chronos-in-domain, chronos-zero-shot, generated, or a YAML file; fev:fev-bench, "
            "fev:fev-mini, fev:chronos-zero-shot, or fev:FILE for tasks of fev; gift-eval, with --data.",
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
    dtype: opt.ComputeDtype = None,
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
        rankscope eval bundled-bolt
        rankscope eval small/ --baseline bundled --out scores.csv
        rankscope eval small/ --baseline bundled --input sales.csv --horizon 12 --windows 3
        rankscope eval small/ --baseline bundled-2 --suite fev:fev-mini --out scores.csv --resume
    """
    from rankscope.engine.pool import Engine
    from rankscope_eval import EvalReport, evaluate
    from rankscope_eval.suites import DEFAULT_SUITE, load_suite

    elsewhere = suite == GIFT or (suite or "").startswith(FEV)
    if elsewhere:
        plain = {"--max-series": max_series, "--metrics": metrics, "--engine": engine != "local", "--jobs": jobs != 1}
        _refuse_plain(plain)
    shown = _metrics(metrics)
    if suite == GIFT and data is None:
        raise OptionError("--suite gift-eval requires --data DIR, the folder of the benchmark's data sets.")
    read = reading(input is not None, INPUT, freq, id_column, time_column, target_column)
    replaced = {"suite": suite, "data": data, "tasks": tasks}
    series = own_suite(input, horizon, windows, season_length, read, replaced) or suite or DEFAULT_SUITE
    refuse_input(out, input)
    if not elsewhere and isinstance(series, str):
        whole = load_suite(series)
        refuse_data(out, whole.folder if data is None else Path(data), whole.tasks)
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
        check_unchanged(out, done, every, series, data, opt.words(tasks))
        leave_finished(out, json)
        if done[0].suffix == ".json" and not json and not elsewhere:
            show_eval(codec.read(EvalReport, done[0]), Output(False).console(), metrics=shown)
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
        with warned(), _mentioned(kept), progress_bar("opening the model") as progress:
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
