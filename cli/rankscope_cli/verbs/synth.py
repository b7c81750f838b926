"""``rankscope synth``: generated series written to shards that training reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from rankscope import choices
from rankscope.errors import OptionError
from rankscope_cli import options as opt
from rankscope_cli.exits import FAILED
from rankscope_cli.output import Output
from rankscope_cli.progress import progress_lines
from rankscope_cli.tables import size

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope.train.data.shard_writer import SynthReport
    from rankscope.train.data.shards import Shards

FILE_SHARE = 0.5
"""Share of series from the user's files where files are given and nothing else is said."""


def run(
    *,
    kind: Annotated[
        choices.SeriesKind | None,
        opt.choice("--kind", choices.SeriesKind, "What generates the series; mixture is of all three.", short="-k"),
    ] = None,
    n: Annotated[int | None, opt.count("--n", "Series to write, e.g. 1_000_000.", short="-n")] = None,
    length: Annotated[int, opt.count("--length", "Values per series, at most.")] = 1024,
    min_length: Annotated[
        int | None,
        opt.count(
            "--min-length", "Values per series, at least: lengths in between are equally likely. --length by default."
        ),
    ] = None,
    files: Annotated[
        list[str] | None,
        opt.value("--files", "FILE,…", "Your own series, for tsmixup and mixture: .csv .parquet .jsonl .arrow."),
    ] = None,
    file_share: Annotated[
        float | None,
        opt.value("--file-share", "S", f"Share of series cut from them; {FILE_SHARE} by default.", min=0, max=1),
    ] = None,
    resume: Annotated[bool, opt.switch("--resume", "Keep what a stopped run has finished.")] = False,
    verify: Annotated[
        bool, opt.switch("--verify", "Write nothing: compare the checksums of the shards in --out.")
    ] = False,
    out: Annotated[str, opt.out_folder("Folder of the shards.")],
    format: Annotated[
        choices.ShardFormat, opt.choice("--format", choices.ShardFormat, "Of shards.", opt.OUTPUT)
    ] = "arrow",
    shard_size: Annotated[int, opt.count("--shard-size", "Series per file.", opt.OUTPUT)] = 16384,
    force: opt.Force = False,
    json: opt.Json = False,
    seed: opt.Seed = 0,
    workers: Annotated[int, opt.value("--workers", "N", "Processes; 0 for one per CPU core.", opt.RUNTIME, min=0)] = 0,
    device: opt.Device = "auto",
    debug: opt.Debug = False,
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

    opt.refuse_cuda(device, "series are generated")
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
        own = opt.words(files) or ()
        share = file_share if file_share is not None else FILE_SHARE if own else 0.0
        spec = library.Synthesis(kind, n, length, min_length or 0, seed, shard_size, format, tuple(own), share)
        goes_on = "the same command with --resume goes on with the next shard"
        with progress_lines("generating series", stopped=goes_on) as progress:
            report = library.write_shards(spec, out, workers=workers, resume=resume, force=force, progress=progress)
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
