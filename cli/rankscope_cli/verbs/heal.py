"""``rankscope heal``: distil the original model into its compressed checkpoint."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rankscope import choices
from rankscope.errors import OptionError
from rankscope_cli import options as opt
from rankscope_cli.output import Output
from rankscope_cli.own_series import reading
from rankscope_cli.progress import RESUMES, progress_lines

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope.compress.heal import HealReport


def run(
    model: Annotated[str, opt.argument("DIR", "Folder of the compressed checkpoint.")],
    *,
    teacher: Annotated[
        str, opt.value("--teacher", "MODEL", "Original model: hub id, folder or bundled name.", short="-t")
    ],
    minutes: Annotated[
        float | None, opt.value("--minutes", "M", "Training time in minutes, excluding loading (default: 5).")
    ] = None,
    steps: Annotated[
        int | None, opt.count("--steps", "Optimiser steps instead of --minutes; reproducible exactly.")
    ] = None,
    train: Annotated[
        choices.Trained, opt.choice("--train", choices.Trained, "Train all parameters or only compressed matrices.")
    ] = "all",
    input: Annotated[
        list[str] | None,
        opt.value(
            "--input",
            "FILE,…",
            "Draw half of the training series from these: .csv .parquet .jsonl .arrow.",
            opt.SERIES,
            "-i",
        ),
    ] = None,
    freq: opt.Freq = None,
    id_column: opt.IdColumn = None,
    time_column: opt.TimeColumn = None,
    target_column: opt.TargetColumn = None,
    truth: Annotated[
        float | None,
        opt.value("--truth", "S", "Weight of the ground-truth loss, in [0, 1] (default: 0.5).", min=0, max=1),
    ] = None,
    learning_rate: Annotated[
        float | None, opt.value("--learning-rate", "R", "Peak learning rate (default: 4e-4).")
    ] = None,
    batch_size: Annotated[int, opt.count("--batch-size", "Series per training step.")] = 32,
    resume: opt.Resume = False,
    out: Annotated[str | None, opt.out_folder("Output folder (default: DIR-healed).")] = None,
    force: opt.Force = False,
    json: opt.Json = False,
    dtype: opt.TrainingDtype = None,
    device: opt.Device = "auto",
    revision: opt.Revision = None,
    seed: opt.Seed = 0,
    debug: opt.Debug = False,
) -> None:
    """Recover accuracy by distillation from the original model.

    Healing is a few minutes of knowledge distillation: on synthetic series, and those of --input, the compressed
    model learns the teacher's token distributions (Chronos-T5) or quantiles (Chronos-Bolt, Chronos-2), plus the true
    future. The learning rate decays to zero by the end. Layout, dtype and config of the checkpoint are unchanged;
    --dtype sets the compute dtype.

    Snapshots and loss.csv are kept next to the output folder, in DIR.run, until training is done; --resume continues
    an interrupted run for the remaining time or steps.

    Examples:
        rankscope heal small/ --teacher bundled-bolt
        rankscope heal small/ --teacher amazon/chronos-bolt-small --minutes 20 --out healed/
        rankscope heal small/ --teacher bundled-bolt --steps 500 --train compressed --input mine.parquet
    """
    if model == teacher or (Path(model).exists() and Path(model).resolve() == Path(teacher).resolve()):
        raise OptionError(f"{model} would be its own teacher: name the model that it was compressed from by --teacher.")
    from rankscope.checkpoints import open_checkpoint
    from rankscope.compress.heal import HealConfig, heal
    from rankscope.engine.device import resolve_device

    files = opt.words(input) or ()
    config = HealConfig(
        minutes=minutes,
        steps=steps,
        train=train,
        truth=HealConfig.truth if truth is None else truth,
        learning_rate=HealConfig.learning_rate if learning_rate is None else learning_rate,
        batch_size=batch_size,
        files=files,
        **reading(bool(files), "--input FILE", freq, id_column, time_column, target_column),
        precision=opt.training_precision(dtype) or "auto",
        seed=seed,
    )
    with Output(json) as output:
        with progress_lines("opening the models", stopped=RESUMES) as progress:
            report = heal(
                model,
                open_checkpoint(teacher, revision=revision),
                config,
                out=out,
                resume=resume,
                force=force,
                device=resolve_device(device),
                progress=progress,
            )
        output.deliver(report, lambda console: _show(report, console))


def _show(report: HealReport, console: Console) -> None:
    share = report.trained_parameters / report.parameters
    console.print(
        f"{report.out}: {report.steps:,} steps in {report.seconds:.0f} s on {share:.0%} of {report.parameters:,} "
        "parameters. To evaluate forecast accuracy:"
    )
    console.print(f"  rankscope eval {shlex.quote(report.out)} --baseline {shlex.quote(report.teacher)}")
