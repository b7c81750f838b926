"""``rankscope lab encoders``: the tables of the encoder audit, run and printed beside the published numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope.errors import OptionError
from rankscope_cli.exits import say
from rankscope_cli.lab_encoders_table import show_audit
from rankscope_cli.options import DEVICES, Debug, Device, Json, check_choice, choice, out_folder, words
from rankscope_cli.output import Output, write_report
from rankscope_cli.progress import progress_lines

if TYPE_CHECKING:
    from rankscope_lab.encoders.cell import Cell, RunResult
    from rankscope_lab.encoders.data import CellData
    from rankscope_lab.encoders.report import Protocol
    from rankscope_lab.encoders.training import How
    from rankscope_lab.fan_out import Engine

ENGINES = ("local", "ray")
PRECISIONS = ("float32", "bfloat16")
QUICK_SEEDS, QUICK_EPOCHS = 2, 40
REPORT = "audit"
_RUNS, _SPREAD = "Runs", "Where it runs"


def run(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TABLE...",
            help="1 to 13, bias, large, paired, findings, or all; 1 by default.",
            show_default=False,
        ),
    ] = None,
    *,
    out: Annotated[str, out_folder("Folder of the runs, new or begun.")],
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", min=1, metavar="N", help="Runs of every cell; 20.", rich_help_panel=_RUNS),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option("--epochs", min=1, metavar="N", help="Of every run; 300.", rich_help_panel=_RUNS)
    ] = None,
    encoders: Annotated[
        list[str] | None,
        typer.Option("--encoders", metavar="NAME,…", help="Only these rows.", rich_help_panel=_RUNS),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="2 seeds × 40 epochs, without ci and cat.", rich_help_panel=_RUNS)
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Train nothing: tables of the runs that are there.", rich_help_panel=_RUNS)
    ] = False,
    data: Annotated[
        str | None, typer.Option("--data", metavar="FILE", help="ETTh1.csv, for Table 13.", rich_help_panel=_RUNS)
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            min=0,
            metavar="N",
            help="Runs at a time; 0: one per core, the default on a CPU.",
            rich_help_panel=_SPREAD,
        ),
    ] = None,
    engine: Annotated[str, choice("--engine", ENGINES, "This machine, or a Ray cluster.", _SPREAD)] = "local",
    address: Annotated[
        str,
        typer.Option(
            "--address",
            metavar="A",
            help="Ray cluster: auto, host:port or ray://host:port; without it Ray starts here.",
            rich_help_panel=_SPREAD,
        ),
    ] = "",
    stack: Annotated[
        int,
        typer.Option(
            "--stack",
            min=0,
            metavar="N",
            help="Most seeds trained as one; 0: 16 on a GPU, 1 on a CPU.",
            rich_help_panel=_SPREAD,
        ),
    ] = 0,
    precision: Annotated[
        str, choice("--precision", PRECISIONS, "Of products; weights stay float32.", _SPREAD)
    ] = "float32",
    stop: Annotated[
        int,
        typer.Option(
            "--stop",
            min=0,
            metavar="N",
            help="Cut every run after epoch N; the learning rate falls as if it went on. 0: none.",
            rich_help_panel=_RUNS,
        ),
    ] = 0,
    force: Annotated[bool, typer.Option("--force", help="Run the cells anew.", rich_help_panel="Output")] = False,
    json: Json = False,
    device: Device = "auto",
    debug: Debug = False,
) -> None:
    """Audit the encoders of several channels: train what the tables need, and print them beside the published numbers.

    Every run is one file in DIR; the same command goes on where a stopped one left off, and tables share runs. A
    verdict says whether a mean is within one or two published standard deviations, inside a published interval, or
    outside. Runs that diverge are counted and enter no mean. DIR/audit.json and .csv hold the tables.

    Examples:
        rankscope lab encoders --quick --out audit/
        rankscope lab encoders 1 paired findings --seeds 5 --out audit/
        rankscope lab encoders 13 --data ETTh1.csv --out audit/
        rankscope lab encoders all --show --out audit/ --json
    """
    from rankscope_lab.encoders.report import audit_cells, audit_report, needs_etth1

    asked = _asked(tables, seeds, epochs, encoders, quick)
    check_choice("engine", engine, ENGINES)
    check_choice("precision", precision, PRECISIONS)
    if show and force:
        raise OptionError("--show trains nothing and --force runs anew: give one of them.")
    cells = audit_cells(asked)
    if data is None and not show and needs_etth1(_unmade(out, cells, force)):
        raise OptionError("these tables need ETTh1: add --data PATH/ETTh1.csv, or --show for what is there.")
    how, where = _how(device, precision, stop, engine), _engine(engine, _jobs(jobs, device, engine), address)
    etth1 = _etth1(data)
    with Output(json) as output:
        results = _stored(out, cells) if show else _trained(cells, out, how, where, data, stack, force)
        report = audit_report(asked, results, etth1)
        files = [Path(out) / f"{REPORT}{suffix}" for suffix in (".json", ".csv")]
        for file in files:
            write_report(report, file, force=True)
        output.deliver(report, lambda console: show_audit(report, console))
        output.wrote(files)


def _asked(
    tables: list[str] | None, seeds: int | None, epochs: int | None, encoders: list[str] | None, quick: bool
) -> Protocol:
    from rankscope_lab.encoders.cell import ARCHITECTURES, ENCODERS, EPOCHS
    from rankscope_lab.encoders.report import PUBLISHED_SEEDS, protocol

    chosen = words(encoders)
    if quick and chosen is None:
        chosen = tuple(name for name in ENCODERS if name not in ARCHITECTURES)
    return protocol(
        words(tables) or ("1",),
        seeds or (QUICK_SEEDS if quick else PUBLISHED_SEEDS),
        epochs or (QUICK_EPOCHS if quick else EPOCHS),
        chosen,
    )


def _how(device: str, precision: str, stop: int, engine: str) -> How:
    import torch

    from rankscope.engine.device import resolve_device
    from rankscope_lab.encoders.training import How

    if engine == "ray":  # the GPUs are the cluster's
        check_choice("device", device, DEVICES)
        return How(torch.device("cuda" if device == "cuda" else "cpu"), precision, stop=stop)
    return How(torch.device(resolve_device(device)), precision, stop=stop)


def _jobs(jobs: int | None, device: str, engine: str) -> int:
    """One per core where runs have a core each; a GPU is shared by stacking."""
    from rankscope.engine.device import resolve_device

    if jobs is not None:
        return jobs
    return 0 if engine == "ray" or resolve_device(device) == "cpu" else 1


def _engine(name: str, jobs: int, address: str) -> Engine:
    from rankscope_lab.fan_out import Engine

    return Engine(name, jobs=jobs, address=address)


def _etth1(path: str | None) -> CellData | None:
    from rankscope_lab.encoders.data import etth1_data

    return None if path is None else etth1_data(path)


def _unmade(out: str, cells: list[Cell], force: bool) -> list[Cell]:
    """Cells that a run is still needed for."""
    from rankscope_lab.encoders.report import stored_runs

    there = set() if force else {run.cell for run in stored_runs(out, cells)}
    return [cell for cell in cells if cell not in there]


def _stored(out: str, cells: list[Cell]) -> list[RunResult]:
    from rankscope_lab.encoders.report import stored_runs

    if not Path(out).is_dir():
        raise OptionError(f"there is no folder {out}: leave out --show to make the runs.")
    return stored_runs(out, cells)


def _trained(
    cells: list[Cell], out: str, how: How, engine: Engine, data: str | None, stack: int, force: bool
) -> list[RunResult]:
    from rankscope_lab.encoders import runs

    try:
        with progress_lines("preparing") as progress:
            return runs.run_cells(
                cells, out, how=how, engine=engine, etth1=data, stack=stack, force=force, progress=progress
            )
    except KeyboardInterrupt:
        same = "the same command without --force" if force else "the same command"
        say(f"stopped: {same} goes on where this one left off.")
        raise
