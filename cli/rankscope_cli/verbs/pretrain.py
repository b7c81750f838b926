"""``rankscope pretrain``: train a model from scratch or from a checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankscope import choices
from rankscope.errors import OptionError, RankscopeError, unknown_choice
from rankscope_cli import options as opt
from rankscope_cli.exits import BAD_INPUT, INTERRUPTED, say
from rankscope_cli.output import Output
from rankscope_cli.own_series import own_suite, reading
from rankscope_cli.progress import RESUMES, progress_lines

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope.train import PretrainConfig, PretrainReport
    from rankscope_eval import Suite


def run(
    config: Annotated[
        str,
        opt.argument(
            "CONFIG",
            "YAML config, design folder, or a shipped config: bundled, bundled-bolt, bundled-2 (then bundled-2-plain "
            "and bundled-2-groups), student.",
        ),
    ],
    *,
    out: Annotated[str, opt.out_folder("Output folder.")],
    resume: opt.Resume = False,
    weights: Annotated[
        str | None,
        opt.value(
            "--from",
            "MODEL",
            "Initialise from this checkpoint (folder, hub id, bundled name), with a fresh optimiser.",
        ),
    ] = None,
    teacher: Annotated[
        str | None,
        opt.value("--teacher", "MODEL", "Distil this forecasting model (folder, hub id, bundled name)."),
    ] = None,
    data: Annotated[str | None, opt.value("--data", "DIR", "Folder with local data files for validation.")] = None,
    input: Annotated[
        str | None, opt.value("--input", "FILE", "Validate on these series; needs --horizon.", opt.SERIES, "-i")
    ] = None,
    horizon: opt.InputHorizon = None,
    windows: opt.Windows = None,
    freq: opt.Freq = None,
    season_length: opt.SeasonLength = None,
    id_column: opt.IdColumn = None,
    time_column: opt.TimeColumn = None,
    target_column: opt.TargetColumn = None,
    skip_damaged: Annotated[bool, opt.switch("--skip-damaged", "Skip damaged shard files instead of failing.")] = False,
    force: opt.Force = False,
    json: opt.Json = False,
    tensorboard: Annotated[
        bool, opt.switch("--tensorboard", "Also write TensorBoard event files.", opt.OUTPUT)
    ] = False,
    seed: Annotated[int | None, opt.value("--seed", "N", "Override the config's seed.", opt.RUNTIME, min=0)] = None,
    workers: Annotated[int, opt.value("--workers", "N", "Data-loading processes per GPU.", opt.RUNTIME, min=0)] = 0,
    device: opt.Device = "auto",
    dtype: opt.TrainingDtype = None,
    debug: opt.Debug = False,
) -> None:
    """Pretrain or fine-tune on synthetic series or your own.

    Trains from scratch by default. With --from, training starts from the weights of a checkpoint and uses its family,
    and its shape unless the config has a model section: to continue pretraining, or to fine-tune on your own series
    (mixture: {files: [...], file_share: 0.8}).

    With --teacher, a Chronos-Bolt learns from the quantile forecasts of a model that forecasts, e.g. a slow one that
    samples, and from the true future values. The encoder is initialised from, and shaped like, the teacher's, with
    one decoder layer, unless the config has a model section; see the config's section teacher.

    Snapshots and loss.csv are kept next to the output folder, in DIR.run, until training is done; --resume continues
    an interrupted run exactly. --dtype overrides the config's precision.

    Use torchrun or accelerate launch for several GPUs or machines; batch_size is per process. (On CPUs, accelerate
    launch needs MPI for several processes; torchrun does not.)

    Examples:
        rankscope pretrain bundled --out mine/
        rankscope pretrain tune.yaml --from bundled-bolt --input held-out.csv --horizon 12 --out tuned/
        rankscope pretrain student --teacher bundled --out student/
        rankscope pretrain run.yaml --out mine/ --seed 1 --workers 4 --tensorboard
        torchrun --nproc-per-node 8 -m rankscope_cli pretrain run.yaml --out mine/
    """
    import rankscope.train as library
    from rankscope.engine.device import resolve_device
    from rankscope.train import processes

    with _one_voice(), Output(json) as output:
        read = reading(input is not None, "--input FILE", freq, id_column, time_column, target_column)
        own = own_suite(input, horizon, windows, season_length, read, {"data": data})
        settings = override(library.read_config(find_config(config)), seed, dtype)
        if weights is not None:
            settings = library.continue_from(settings, weights)
        if teacher is not None:
            settings = library.learn_from(settings, teacher)
        validate = validation(settings, own or settings.validation.suite, data)
        if input is not None:
            settings = dataclasses.replace(settings, validation=dataclasses.replace(settings.validation, suite=input))
        where = resolve_device(device)
        with _progress() as progress:
            report = library.pretrain(
                settings,
                out,
                resume=resume,
                force=force,
                device=where,
                workers=workers,
                progress=progress,
                validate=validate,
                skip_damaged=skip_damaged,
                tensorboard=tensorboard and _has_tensorboard(),
            )
        if processes.is_main():
            output.deliver(report, lambda console: _show(report, console))
        processes.leave()


def find_config(config: str) -> Path:
    """Resolve a YAML path, a design folder or the name of a shipped config to a file.

    Raises:
        OptionError: none of these exists.
    """
    import rankscope.train as library

    file = Path(config)
    if (file / "pretrain.yaml").is_file():
        return file / "pretrain.yaml"
    if file.is_file():
        return file
    shipped = {path.stem: path for path in (Path(library.__file__).parent / "configs").glob("*.yaml")}
    if config in shipped:
        return shipped[config]
    if file.is_dir():
        raise OptionError(f"folder {config} has no pretrain.yaml: give a YAML file, or a folder of rankscope design.")
    if file.suffix or len(file.parts) > 1:
        raise OptionError(f"there is no file {config}: give a YAML file, or one of {', '.join(sorted(shipped))}.")
    raise OptionError(unknown_choice("config", config, sorted(shipped), "Or give the path of a YAML file."))


def override(settings: PretrainConfig, seed: int | None, dtype: choices.TrainingDtype | None) -> PretrainConfig:
    """Override config fields with command-line options."""
    changes: dict[str, Any] = {} if seed is None else {"seed": seed}
    precision = opt.training_precision(dtype)
    if precision is not None:
        changes["precision"] = precision
    return dataclasses.replace(settings, **changes)


def validation(
    settings: PretrainConfig, suite: str | Suite, data: str | None
) -> Callable[[Any], dict[str, float]] | None:
    """Build the validation function on a suite if the config asks for validation, else None.

    Raises:
        RankscopeError: the suite or its data are not usable.
    """
    asked = settings.validation
    if not asked.every:
        if data is not None or suite != asked.suite:
            flag = "--input" if data is None else "--data"
            raise OptionError(f"{flag} has no effect: validation.every is 0 in the config.")
        return None
    from rankscope_eval import score_during_training

    return score_during_training(suite, asked.series, data)


def _has_tensorboard() -> bool:
    from rankscope.train import logs, processes

    if not logs.tensorboard_installed() and processes.is_main():
        say(logs.TENSORBOARD_MISSING)
    return logs.tensorboard_installed()


@contextmanager
def _one_voice() -> Iterator[None]:
    """Report errors from the main process only."""
    from rankscope.train import processes

    try:
        yield
    except processes.PeerFailed:
        raise typer.Exit(BAD_INPUT) from None
    except RankscopeError:
        if processes.is_main() or processes.joined():  # before the process group exists, rank 0 hits the same error
            raise
        raise typer.Exit(BAD_INPUT) from None


@contextmanager
def _progress() -> Iterator[Callable[[int, int, str], None]]:
    from rankscope.engine import silent
    from rankscope.train import processes

    if processes.is_main():
        with progress_lines("generating series", stopped=RESUMES) as progress:
            yield progress
        return
    try:
        yield silent
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _show(report: PretrainReport, console: Console) -> None:
    left_out = f", {report.skipped:,} damaged shard files skipped" if report.skipped else ""
    console.print(
        f"{report.folder}: {report.parameters:,} parameters, {report.steps:,} steps in {report.seconds:.0f} s, "
        f"loss {report.loss:.3f}{left_out}"
    )
