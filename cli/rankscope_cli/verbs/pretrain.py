"""``rankscope pretrain``: a model trained from scratch on generated series."""

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
from rankscope_cli.progress import SNAPSHOT, progress_lines

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope.train import PretrainConfig, PretrainReport


def run(
    config: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG",
            help="YAML file of the run, folder of a design, or a shipped run: bundled, bundled-bolt, bolt.",
        ),
    ],
    *,
    out: Annotated[str, opt.out_folder("Folder of the new checkpoint.")],
    resume: opt.Resume = False,
    weights: Annotated[
        str | None,
        opt.value(
            "--from",
            "MODEL",
            "Begin with the weights of this checkpoint (folder, hub id, bundled name) and a fresh optimiser.",
        ),
    ] = None,
    data: Annotated[
        str | None, opt.value("--data", "DIR", "Folder of local data files that validation scores on.")
    ] = None,
    skip_damaged: Annotated[
        bool, opt.switch("--skip-damaged", "Leave damaged shard files out; without it they are an error.")
    ] = False,
    force: opt.Force = False,
    json: opt.Json = False,
    tensorboard: Annotated[
        bool, opt.switch("--tensorboard", "Also write TensorBoard event files.", opt.OUTPUT)
    ] = False,
    seed: Annotated[int | None, opt.value("--seed", "N", "In place of the config's seed.", opt.RUNTIME, min=0)] = None,
    workers: Annotated[
        int, opt.value("--workers", "N", "Processes that make batches, per GPU.", opt.RUNTIME, min=0)
    ] = 0,
    device: opt.Device = "auto",
    dtype: opt.TrainingDtype = None,
    debug: opt.Debug = False,
) -> None:
    """Train a model on generated series or your own.

    It starts from scratch; with --from the run begins with the weights of a checkpoint, whose family, and shape if the
    config has no model section, it takes: to fine-tune on series of your own (mixture: {files: [...], file_share:
    0.8}), or to train on.

    Snapshots and loss.csv lie beside the output folder, in DIR.run, until the run is done; a stopped run, however it
    was stopped, goes on exactly with --resume. --dtype float32 or bfloat16 replaces the config's precision.

    torchrun and accelerate launch train on several GPUs or machines; every process takes the config's batch_size.
    (accelerate launch --cpu starts several processes only under MPI: torchrun does without.)

    Examples:
        rankscope pretrain bundled --out mine/
        rankscope pretrain run.yaml --out mine/ --resume
        rankscope pretrain tune.yaml --from bundled-bolt --out tuned/
        rankscope pretrain run.yaml --out mine/ --seed 1 --workers 4 --tensorboard
        torchrun --nproc-per-node 8 -m rankscope_cli pretrain run.yaml --out mine/
    """
    import rankscope.train as library
    from rankscope.engine.device import resolve_device
    from rankscope.train import processes

    with _one_voice(), Output(json) as output:
        settings = override(library.read_config(find_config(config)), seed, dtype)
        if weights is not None:
            settings = library.continue_from(settings, weights)
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
                validate=validation(settings, data),
                skip_damaged=skip_damaged,
                tensorboard=tensorboard and _has_tensorboard(),
            )
        if processes.is_main():
            output.deliver(report, lambda console: _show(report, console))
        processes.leave()


def find_config(config: str) -> Path:
    """Find a YAML file by its path or that of the folder of a design, or a shipped one by its name.

    Raises:
        OptionError: it is neither.
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
    raise OptionError(unknown_choice("config", config, sorted(shipped), "The path of a YAML file works too."))


def override(settings: PretrainConfig, seed: int | None, dtype: choices.TrainingDtype | None) -> PretrainConfig:
    """Put the options of the command line in place of the config's fields."""
    changes: dict[str, Any] = {} if seed is None else {"seed": seed}
    precision = opt.training_precision(dtype)
    if precision is not None:
        changes["precision"] = precision
    return dataclasses.replace(settings, **changes)


def validation(settings: PretrainConfig, data: str | None) -> Callable[[Any], dict[str, float]] | None:
    """Make the scores that a config asks for during training, or None.

    Raises:
        RankscopeError: the suite or its data cannot be used.
    """
    asked = settings.validation
    if not asked.every:
        if data is not None:
            raise OptionError("--data is of no use here: the config's validation.every is 0, so nothing is scored.")
        return None
    from rankscope_eval import score_during_training

    return score_during_training(asked.suite, asked.series, data)


def _has_tensorboard() -> bool:
    from rankscope.train import logs, processes

    if not logs.tensorboard_installed() and processes.is_main():
        say(logs.TENSORBOARD_MISSING)
    return logs.tensorboard_installed()


@contextmanager
def _one_voice() -> Iterator[None]:
    """Let one of several processes speak for all: what they all run into is said once."""
    from rankscope.train import processes

    try:
        yield
    except processes.PeerFailed:
        raise typer.Exit(BAD_INPUT) from None
    except RankscopeError:
        if processes.is_main() or processes.joined():  # before they are joined, the first one finds the same
            raise
        raise typer.Exit(BAD_INPUT) from None


@contextmanager
def _progress() -> Iterator[Callable[[int, int, str], None]]:
    from rankscope.engine import silent
    from rankscope.train import processes

    if processes.is_main():
        with progress_lines("generating series", stopped=SNAPSHOT) as progress:
            yield progress
        return
    try:
        yield silent
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _show(report: PretrainReport, console: Console) -> None:
    left_out = f", {report.skipped:,} damaged shard files left out" if report.skipped else ""
    console.print(
        f"{report.folder}: {report.parameters:,} parameters, {report.steps:,} steps in {report.seconds:.0f} s, "
        f"loss {report.loss:.3f}{left_out}",
        markup=False,
    )
