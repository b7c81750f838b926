"""``rankscope pretrain``: a model trained from scratch on generated series."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope.errors import OptionError, unknown_choice
from rankscope_cli.exits import say
from rankscope_cli.options import Debug, Device, Force, Json
from rankscope_cli.output import Output
from rankscope_cli.progress import progress_bar

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope.pretrain import PretrainReport


def run(
    config: Annotated[
        str, typer.Argument(metavar="CONFIG", help="YAML file of the run, or a shipped one: bundled, bundled-bolt.")
    ],
    *,
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="DIR", help="Folder of the new checkpoint.", rich_help_panel="Output")
    ],
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest snapshot of a stopped run.")] = False,
    force: Force = False,
    json: Json = False,
    device: Device = "auto",
    debug: Debug = False,
) -> None:
    """Train a Chronos-T5 or Chronos-Bolt model from scratch on generated series.

    Snapshots and loss.csv lie beside the output folder until the run is done; a stopped run goes on with --resume. The
    seed is the config's.

    Examples:
        rankscope pretrain bundled --out mine/
        rankscope pretrain run.yaml --out mine/ --resume
    """
    import rankscope.pretrain as library
    from rankscope.placement import resolve_device

    with Output(json) as output:
        settings = library.read_config(find_config(config))
        try:
            with progress_bar("generating series") as progress:
                report = library.pretrain(
                    settings, out, resume=resume, force=force, device=resolve_device(device), progress=progress
                )
        except KeyboardInterrupt:
            say("stopped: the same command with --resume goes on from the newest snapshot.")
            raise
        output.deliver(report, lambda console: _show(report, console))


def find_config(config: str) -> Path:
    """Find a YAML file by its path, or a shipped one by its name.

    Raises:
        OptionError: it is neither.
    """
    import rankscope.pretrain as library

    file = Path(config)
    if file.is_file():
        return file
    shipped = {path.stem: path for path in (Path(library.__file__).parent / "configs").glob("*.yaml")}
    if config in shipped:
        return shipped[config]
    raise OptionError(unknown_choice("config", config, sorted(shipped), "The path of a YAML file works too."))


def _show(report: PretrainReport, console: Console) -> None:
    console.print(
        f"{report.folder}: {report.parameters:,} parameters, {report.steps:,} steps in {report.seconds:.0f} s, "
        f"loss {report.loss:.3f}",
        markup=False,
    )
