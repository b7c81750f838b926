"""``rankscope synth``: generated series written to shards that training reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from rankscope import choices
from rankscope.errors import OptionError
from rankscope_cli.exits import FAILED, say
from rankscope_cli.options import Debug, Device, Force, Json, Seed, choice, out_folder, refuse_cuda, words, worker_count
from rankscope_cli.output import Output
from rankscope_cli.progress import progress_lines
from rankscope_cli.tables import size

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope.train.data.shards import Shards
    from rankscope.train.data.synth_report import SynthReport

FILE_SHARE = 0.5
"""Share of series from the user's files where files are given and nothing else is said."""


def run(
    *,
    kind: Annotated[
        choices.SeriesKind | None,
        choice("--kind", choices.SeriesKind, "What generates the series; mixture is of all three.", short="-k"),
    ] = None,
    n: Annotated[
        int | None, typer.Option("--n", "-n", min=1, metavar="N", help="Series to write, e.g. 1_000_000.")
    ] = None,
    length: Annotated[int, typer.Option("--length", min=1, metavar="N", help="Values per series, at most.")] = 1024,
    min_length: Annotated[
        int | None,
        typer.Option(
            "--min-length",
            min=1,
            metavar="N",
            help="Values per series, at least: lengths in between are equally likely. --length by default.",
        ),
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Option(
            "--files", metavar="FILE,…", help="Your own series, for tsmixup and mixture: .csv .parquet .jsonl .arrow."
        ),
    ] = None,
    file_share: Annotated[
        float | None,
        typer.Option(
            "--file-share", min=0, max=1, metavar="S", help=f"Share of series cut from them; {FILE_SHARE} by default."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Keep what a stopped run has finished.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Write nothing: compare the checksums of the shards in --out.")
    ] = False,
    out: Annotated[str, out_folder("Folder of the shards.")],
    format: Annotated[choices.ShardFormat, choice("--format", choices.ShardFormat, "Of shards.", "Output")] = "arrow",
    shard_size: Annotated[
        int, typer.Option("--shard-size", min=1, metavar="N", help="Series per file.", rich_help_panel="Output")
    ] = 16384,
    force: Force = False,
    json: Json = False,
    seed: Seed = 0,
    workers: Annotated[int, worker_count("Processes; 0 for one per CPU core.")] = 0,
    device: Device = "auto",
    debug: Debug = False,
) -> None:
    """Generate series into shards for training.

    Shards are Arrow or Parquet files, so that training never waits for data. A config's field shards names the folder.
    Every shard is a function of the options and its number, whatever --workers is. Finished shards of a stopped run lie
    in DIR.partial until all are there. gluonts and datasets read the shards, too.

    Examples:
        rankscope synth --kind kernelsynth --n 1_000_000 --out shards/
        rankscope synth -k tsmixup -n 100_000 --min-length 128 --files sales.csv -o mixed/
        rankscope synth --verify --out shards/
    """
    import rankscope.train as library

    refuse_cuda(device, "series are generated")
    with Output(json) as output:
        if verify:
            with progress_lines("checking shards") as progress:
                shards = library.open_shards(out, skip_damaged=True, verify=True, progress=progress)
            check = Check.of(shards)
            output.deliver(check, check.show)
            if check.damaged:
                raise typer.Exit(FAILED)
            return
        if kind is None or n is None:
            raise OptionError("--kind and --n say what to generate: give both, or --verify.")
        own = words(files) or ()
        share = file_share if file_share is not None else FILE_SHARE if own else 0.0
        spec = library.Synthesis(kind, n, length, min_length or 0, seed, shard_size, format, tuple(own), share)
        try:
            with progress_lines("generating series") as progress:
                report = library.write_shards(spec, out, workers=workers, resume=resume, force=force, progress=progress)
        except KeyboardInterrupt:
            say("stopped: the same command with --resume goes on with the next shard.")
            raise
        output.deliver(report, lambda console: _show(report, console))


@dataclass(frozen=True)
class Check:
    """Result of checking a folder of shards.

    Attributes:
        folder: where they are.
        shards: number of files that are whole.
        series: in those.
        damaged: one line for every other file.
    """

    folder: str
    shards: int
    series: int
    damaged: tuple[str, ...]

    SCHEMA: ClassVar = "rankscope/shards-check@1"

    @classmethod
    def of(cls, shards: Shards) -> Check:
        """Summarise opened shards."""
        return cls(str(shards.folder), len(shards.files), len(shards), shards.damaged)

    def show(self, console: Console) -> None:
        """Print what is whole and what is not."""
        for line in self.damaged:
            console.print(line, markup=False)
        console.print(
            f"{self.folder}: {self.shards:,} shards with {self.series:,} series are whole, "
            f"{len(self.damaged):,} damaged",
            markup=False,
        )


def _show(report: SynthReport, console: Console) -> None:
    console.print(
        f"{report.folder}: {report.series:,} series in {report.shards:,} shards, {size(report.bytes)}", markup=False
    )
    if report.written:
        console.print(
            f"wrote {report.written:,} in {report.seconds:,.1f} s: {report.series_per_second:,.0f} series/s, "
            f"{report.mb_per_second:,.1f} MB/s",
            markup=False,
        )
    else:
        console.print("all were there already", markup=False)
    for reason, count in report.left_out.items():
        if count:
            console.print(f"left out {count:,} {reason} series of the files", markup=False)
