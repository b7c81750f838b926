"""``rankscope heal``: a compressed checkpoint, distilled against the model that it was made from."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope import choices
from rankscope_cli import options as opt
from rankscope_cli.output import Output
from rankscope_cli.progress import SNAPSHOT, progress_lines

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope.compress.heal import HealReport


def run(
    model: Annotated[str, typer.Argument(metavar="DIR", help="Folder of the compressed checkpoint.")],
    *,
    teacher: Annotated[
        str, opt.value("--teacher", "MODEL", "What was compressed: hub id, folder, bundled name.", short="-t")
    ],
    minutes: Annotated[
        float | None, opt.value("--minutes", "M", "Time to train, without loading; 5 by default.")
    ] = None,
    steps: Annotated[int | None, opt.count("--steps", "Instead: optimiser steps, repeatable exactly.")] = None,
    train: Annotated[
        choices.Trained, opt.choice("--train", choices.Trained, "All parameters, or those of the compressed matrices.")
    ] = "all",
    series: Annotated[
        list[str] | None, opt.value("--series", "FILE,…", "Half of the series are windows of those in these files.")
    ] = None,
    truth: Annotated[
        float | None, opt.value("--truth", "S", "Share of the loss against the true future.", min=0, max=1)
    ] = None,
    lr: Annotated[float | None, opt.value("--lr", "R", "Peak learning rate.")] = None,
    batch_size: Annotated[int, opt.count("--batch-size", "Series per step.")] = 32,
    resume: opt.Resume = False,
    out: Annotated[str | None, opt.out_folder("Folder of the healed checkpoint; DIR-healed by default.")] = None,
    force: Annotated[
        bool, opt.switch("--force", "Replace what --out names; without --out, DIR itself.", opt.OUTPUT)
    ] = False,
    json: opt.Json = False,
    dtype: opt.TrainingDtype = None,
    device: opt.Device = "auto",
    revision: opt.Revision = None,
    seed: opt.Seed = 0,
    debug: opt.Debug = False,
) -> None:
    """Distil the original model into its compressed checkpoint.

    It trains for some minutes to answer as its teacher does. On generated series, and on those of --series, a
    Chronos-T5 learns the teacher's token distributions, a Chronos-Bolt its quantiles, and both besides what did follow.
    The learning rate falls to zero by the end of the minutes. Layout, number format and config stay as they are.
    --dtype float32 or bfloat16 is the format that is computed in.

    Snapshots and loss.csv lie beside the output folder, in DIR.run, until it is done; what is stopped, however it was
    stopped, goes on with --resume, for the time or the steps that are left.

    Examples:
        rankscope heal small/ --teacher bundled-bolt
        rankscope heal small/ --teacher amazon/chronos-bolt-small --minutes 20 --out healed/
        rankscope heal small/ --teacher bundled-bolt --steps 500 --train compressed --series mine.parquet
    """
    from rankscope.checkpoints import open_checkpoint
    from rankscope.compress.heal import HealConfig, heal
    from rankscope.engine.device import resolve_device

    config = HealConfig(
        minutes=minutes,
        steps=steps,
        train=train,
        truth=HealConfig.truth if truth is None else truth,
        learning_rate=HealConfig.learning_rate if lr is None else lr,
        batch_size=batch_size,
        files=opt.words(series) or (),
        precision=opt.training_precision(dtype) or "auto",
        seed=seed,
    )
    with Output(json) as output:
        with progress_lines("opening the models", stopped=SNAPSHOT) as progress:
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
        f"parameters, {report.loss} {report.first_loss:.4f} → {report.last_loss:.4f}. Verify that the forecasts held:",
        markup=False,
    )
    console.print(f"  rankscope eval {shlex.quote(report.out)} --baseline {shlex.quote(report.teacher)}", markup=False)
