"""``rankscope calibrate``: save second moments of layer inputs for `compress`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rankscope import choices
from rankscope.errors import OptionError
from rankscope_cli import options as opt
from rankscope_cli.exits import say
from rankscope_cli.output import Output, check_file
from rankscope_cli.own_series import reading
from rankscope_cli.progress import RESUMES, progress_lines
from rankscope_cli.tables import add_columns, plain_table, print_table, where
from rankscope_eval.numbers import significant

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope.checkpoints import Checkpoint
    from rankscope.compress.calibration import CalibrationReport
    from rankscope.families import Site


SUFFIX = ".safetensors"


def run(
    model: opt.Model = None,
    *,
    calibration: Annotated[
        str | None,
        opt.value(
            "--calibration",
            "SET",
            "Calibration data: mixture:N, kernelsynth:N, a file, or several, comma-separated, @C at the end for "
            "histories of C values (default: mixture:256, or mixture:1024 for patch models and more for large "
            "Chronos-Bolt, of at most 512 values); "
            "text:FILE or text:FILE:N for text models.",
            short="-c",
        ),
    ] = None,
    freq: opt.Freq = None,
    id_column: opt.IdColumn = None,
    time_column: opt.TimeColumn = None,
    target_column: opt.TargetColumn = None,
    out: Annotated[str, opt.value("--out", "FILE", "Output file.", opt.OUTPUT, "-o")] = "moments.safetensors",
    decoder: Annotated[
        choices.Decoder,
        opt.choice(
            "--decoder",
            choices.Decoder,
            "Decoder inputs: the true future (teacher forcing) or sampled paths (Chronos-T5).",
        ),
    ] = "teacher",
    sites: opt.LinearSites = None,
    resume: Annotated[bool, opt.switch("--resume", "Resume an interrupted run with the same --out.")] = False,
    force: opt.Force = False,
    json: opt.Json = False,
    batch_size: opt.BatchSize = 16,
    device: opt.Device = "auto",
    dtype: Annotated[choices.Dtype | None, opt.dtype("Number format of the passes (default: float32).")] = None,
    revision: opt.Revision = None,
    seed: opt.Seed = 0,
    debug: opt.Debug = False,
) -> None:
    """Collect calibration statistics of a model's layer inputs.

    One pass serves any number of compressions: `rankscope compress --calibration FILE` accepts the file for every
    method, size and allocation. It holds second moments of layer inputs, so its size depends on the model, not on the
    number of series, and it is valid only for these weights. Selecting one attention matrix includes the others of the
    same attention. --resume continues an interrupted run with bit-identical results.

    Examples:
        rankscope calibrate amazon/chronos-t5-base --calibration mine.parquet,mixture:256 --out moments.safetensors
        rankscope calibrate bundled --calibration mixture:512 --decoder sampled --resume
        rankscope calibrate small-t5/ --calibration text:book.txt --sites all
    """
    from rankscope.checkpoints import open_checkpoint
    from rankscope.compress.calibration import calibrate, named_set, report_on, unfinished
    from rankscope.compress.calibration.sources import names_file
    from rankscope.compress.prepare import check_family
    from rankscope.engine.device import resolve_device
    from rankscope.io.run_store import refuse_both

    refuse_both(resume, force)
    read = reading(names_file(calibration), "--calibration FILE", freq, id_column, time_column, target_column)
    file = Path(out)
    if not resume:
        unfinished(file).check(force=force)
    check_file(file, force or resume, (SUFFIX,))
    with Output(json) as output:
        with progress_lines("opening the model", stopped=RESUMES, begun=unfinished(file).root) as progress:
            checkpoint = open_checkpoint(model, revision=revision)
            check_family(checkpoint)
            chosen = _matrices(checkpoint, opt.words(sites))
            how: dict[str, Any] = {
                "sites": chosen,
                "decoder": decoder,
                "batch_size": batch_size,
                "seed": seed,
                "device": resolve_device(device),
                "dtype": dtype,
            }
            chosen_set = named_set(checkpoint, calibration, seed=seed, **read)
            found = calibrate(checkpoint, chosen_set, file=file, force=force, progress=progress, **how)
            report = report_on(found, checkpoint, chosen, str(file), progress=progress)
        output.deliver(report, lambda console: show_calibration(report, console))
        output.wrote([file])
    for note in report.notes:
        say(f"warning: {note}")


def _matrices(checkpoint: Checkpoint, chosen: tuple[str, ...] | None) -> tuple[Site, ...]:
    """Return the selected matrices and their partners, without lookup tables, which have no inputs.

    Raises:
        OptionError: only lookup tables are selected, or a selector is unknown.
    """
    from rankscope.compress.calibration.passes import with_partners
    from rankscope.compress.options import WHOLE

    selected = [site for site in checkpoint.sites(chosen or WHOLE) if site.role != "embedding"]
    if not selected:
        raise OptionError(f"--sites {','.join(chosen or ())} selects only a lookup table; choose from attention, mlp.")
    return tuple(site for site in with_partners(checkpoint, selected) if site.role != "embedding")


_STACKS = {"memory": "decoder", "input_patch_embedding": "encoder", "output_patch_embedding": "head"}
"""Activation stream → stack of the matrices that read it, if the names differ."""


def show_calibration(report: CalibrationReport, console: Console) -> None:
    """Print one row per stack and the next command."""
    title = f"{report.model} on {report.corpus}: {report.series:,} series, decoder {report.decoder}"
    table = plain_table(title=title)
    add_columns(table, ["stack", "matrices", "positions", "per series", "width", "least eff. rank", "where"])
    for stack in dict.fromkeys(stream.stack for stream in report.streams):
        same = [stream for stream in report.streams if stream.stack == stack]
        least = min(same, key=lambda stream: stream.effective_rank)
        tokens = min(stream.tokens for stream in same)
        table.add_row(
            stack,
            str(sum(len(stream.matrices) for stream in same)),
            f"{tokens:,}",
            significant(tokens / report.series),
            str(max(stream.width for stream in same)),
            significant(least.effective_rank),
            f"{where(_STACKS.get(least.stack, least.stack), least.layer)} {least.role}",
        )
    print_table(table, console)
    console.print()
    console.print("Next:")
    console.print(
        f"  rankscope compress {shlex.quote(report.model)} --ratio 0.3 --calibration "
        f"{shlex.quote(report.out)} --out small/"
    )
