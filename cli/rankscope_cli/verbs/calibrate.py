"""``rankscope calibrate``: moments of every layer's input in a file that `compress` reads."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rankscope import choices
from rankscope.errors import OptionError
from rankscope_cli import options as opt
from rankscope_cli.exits import say
from rankscope_cli.output import Output, check_file
from rankscope_cli.progress import RESUMES, progress_lines
from rankscope_cli.tables import add_columns, figures, plain_table, print_table, where

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
            "Series to look at: mixture:N, kernelsynth:N, a file, several with commas; mixture:256 by default. Of a "
            "text model text:FILE or text:FILE:N.",
            short="-c",
        ),
    ] = None,
    out: Annotated[str, opt.value("--out", "FILE", "File of the moments.", opt.OUTPUT, "-o")] = "moments.safetensors",
    decoder: Annotated[
        choices.Decoder,
        opt.choice(
            "--decoder", choices.Decoder, "What the decoder reads: the true future, or its own paths (Chronos-T5)."
        ),
    ] = "teacher",
    sites: opt.Sites = None,
    resume: Annotated[bool, opt.switch("--resume", "Go on with the FILE of a run that was stopped.")] = False,
    force: opt.Force = False,
    json: opt.Json = False,
    batch_size: opt.BatchSize = 16,
    device: opt.Device = "auto",
    dtype: opt.Dtype = None,
    revision: opt.Revision = None,
    seed: opt.Seed = 0,
    debug: opt.Debug = False,
) -> None:
    """Collect calibration statistics of a model's layer inputs.

    One pass serves every later compression. The file holds second moments, so its size depends on the model and not on
    the number of series, and `rankscope compress --calibration FILE` takes it for any method, size and allocation;
    moments of other weights are refused. The other matrices of a selected attention are looked at, too. A run that was
    stopped goes on with --resume and ends with the same bits.

    Examples:
        rankscope calibrate amazon/chronos-t5-base --calibration mine.parquet,mixture:256 --out moments.safetensors
        rankscope calibrate bundled --calibration mixture:512 --decoder sampled --resume
        rankscope calibrate small-t5/ --calibration text:book.txt --sites all
    """
    from rankscope.checkpoints import open_checkpoint
    from rankscope.compress.calibration import calibrate, named_set, report_on, unfinished
    from rankscope.engine.device import resolve_device
    from rankscope.io.run_store import refuse_both

    refuse_both(resume, force)
    file = Path(out)
    if not resume:
        unfinished(file).check(force=force)
    check_file(file, force or resume, (SUFFIX,))
    with Output(json) as output:
        with progress_lines("opening the model", stopped=RESUMES, begun=unfinished(file).root) as progress:
            checkpoint = open_checkpoint(model, revision=revision)
            chosen = _matrices(checkpoint, opt.words(sites))
            how: dict[str, Any] = {
                "sites": chosen,
                "decoder": decoder,
                "batch_size": batch_size,
                "seed": seed,
                "device": resolve_device(device),
                "dtype": dtype,
            }
            chosen_set = named_set(checkpoint, calibration, seed=seed)
            found = calibrate(checkpoint, chosen_set, file=file, force=force, progress=progress, **how)
            report = report_on(found, checkpoint, chosen, str(file))
        output.deliver(report, lambda console: show_calibration(report, console))
        output.wrote([file])
    for note in report.notes:
        say(f"warning: {note}")


def _matrices(checkpoint: Checkpoint, chosen: tuple[str, ...] | None) -> tuple[Site, ...]:
    """Selected matrices and their partners; a lookup table has no rows that enter it.

    Raises:
        OptionError: nothing but lookup tables is selected, or a word is unknown.
    """
    from rankscope.compress.calibration.passes import with_partners

    selected = [site for site in checkpoint.sites(chosen or ("attention",)) if site.role != "embedding"]
    if not selected:
        raise OptionError(f"--sites {','.join(chosen or ())} selects only a lookup table: choose from attention, mlp.")
    return tuple(site for site in with_partners(checkpoint, selected) if site.role != "embedding")


_STACKS = {"memory": "decoder", "input_patch_embedding": "encoder"}
"""Stack of the matrices that read a stream, where it is not the stream's."""


def show_calibration(report: CalibrationReport, console: Console) -> None:
    """Print one line per stack, and the command that uses the file."""
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
            figures(tokens / report.series),
            str(max(stream.width for stream in same)),
            figures(least.effective_rank),
            f"{where(_STACKS.get(least.stack, least.stack), least.layer)} {least.role}",
        )
    print_table(table, console)
    console.print()
    console.print("Use it:", markup=False)
    console.print(
        f"  rankscope compress {shlex.quote(report.model)} --method joint --ratio 0.15 --calibration "
        f"{shlex.quote(report.out)} --out small/",
        markup=False,
    )
