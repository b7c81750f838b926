"""``rankscope synth``: generate synthetic series and write them to shards."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from rankscope import choices
from rankscope.errors import OptionError
from rankscope_cli import options as opt
from rankscope_cli.exits import FAILED
from rankscope_cli.output import Output
from rankscope_cli.own_series import reading
from rankscope_cli.progress import progress_lines
from rankscope_eval.numbers import plural, size

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope.train.data.shard_writer import SynthReport
    from rankscope.train.data.shards import Shards

FILE_SHARE = 0.5
"""Default fraction of series from the user's files, if files are given."""


def run(
    *,
    kind: Annotated[
        choices.SeriesKind | None,
        opt.choice("--kind", choices.SeriesKind, "Generator; mixture combines all three.", short="-k"),
    ] = None,
    n: Annotated[int | None, opt.count("--n", "Series to write, e.g. 1_000_000.", short="-n")] = None,
    length: Annotated[int, opt.count("--length", "Maximum length of a series.")] = 1024,
    min_length: Annotated[
        int | None,
        opt.count("--min-length", "Minimum length of a series; lengths are uniform in between (default: --length)."),
    ] = None,
    input: Annotated[
        list[str] | None,
        opt.value(
            "--input",
            "FILE,…",
            "Your own series, for tsmixup and mixture: .csv .parquet .jsonl .arrow.",
            opt.SERIES,
            "-i",
        ),
    ] = None,
    input_share: Annotated[
        float | None,
        opt.value(
            "--input-share",
            "S",
            f"Fraction of series drawn from --input (default: {FILE_SHARE}).",
            opt.SERIES,
            min=0,
            max=1,
        ),
    ] = None,
    freq: opt.Freq = None,
    id_column: opt.IdColumn = None,
    time_column: opt.TimeColumn = None,
    target_column: opt.TargetColumn = None,
    resume: Annotated[bool, opt.switch("--resume", "Resume an interrupted run; finished shards are kept.")] = False,
    verify: Annotated[
        bool, opt.switch("--verify", "Verify the checksums of the shards in --out; write nothing.")
    ] = False,
    out: Annotated[str, opt.out_folder("Folder of shards.")],
    format: Annotated[
        choices.ShardFormat, opt.choice("--format", choices.ShardFormat, "File format of shards.", opt.OUTPUT)
    ] = "arrow",
    shard_size: Annotated[int, opt.count("--shard-size", "Series per shard.", opt.OUTPUT)] = 16384,
    force: opt.Force = False,
    json: opt.Json = False,
    seed: opt.Seed = 0,
    workers: Annotated[
        int, opt.value("--workers", "N", "Worker processes; 0: one per CPU core.", opt.RUNTIME, min=0)
    ] = 0,
    device: opt.Device = "auto",
    debug: opt.Debug = False,
) -> None:
    """Generate sharded synthetic series for training.

    Shards are Arrow or Parquet files, readable by gluonts and datasets; the config field `shards` of a training run
    names the folder. Their content is deterministic and independent of --workers. Finished shards are kept in
    DIR.partial until all are written.

    Examples:
        rankscope synth --kind kernelsynth --n 1_000_000 --out shards/
        rankscope synth -k tsmixup -n 100_000 --min-length 128 --input sales.csv -o mixed/
        rankscope synth --verify --out shards/
    """
    import rankscope.train as library

    if verify:
        told = {
            "kind": kind, "n": n, "length": length, "min-length": min_length, "input": input,
            "input-share": input_share, "freq": freq, "id-column": id_column, "time-column": time_column,
            "target-column": target_column, "format": format, "shard-size": shard_size, "seed": seed,
            "workers": workers, "resume": resume, "force": force,
        }  # fmt: skip
        _refuse_beside_verify(told)
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
            raise OptionError("give both --kind and --n, or --verify.")
        own = opt.words(input) or ()
        if input_share is not None and not own:
            raise OptionError("--input-share requires --input FILE.")
        share = input_share if input_share is not None else FILE_SHARE if own else 0.0
        read = reading(bool(own), "--input FILE", freq, id_column, time_column, target_column)
        spec = library.Synthesis(kind, n, length, min_length or 0, seed, shard_size, format, own, share, **read)
        goes_on = "rerun with --resume to continue with the next shard"
        with progress_lines("generating series", stopped=goes_on) as progress:
            report = library.write_shards(spec, out, workers=workers, resume=resume, force=force, progress=progress)
        output.deliver(report, lambda console: _show(report, console))


def _refuse_beside_verify(told: dict[str, Any]) -> None:
    """Raise `OptionError` for the first option that is not at its default."""
    defaults = {name.replace("_", "-"): one.default for name, one in inspect.signature(run).parameters.items()}
    for name, value in told.items():
        if value != defaults[name]:
            raise OptionError(f"--{name} has no effect with --verify: shards are checked, and nothing is written.")


@dataclass(frozen=True)
class Check:
    """Verification result of a folder of shards.

    Attributes:
        folder: path of the folder.
        shards: number of valid files.
        series: number of series in the valid files.
        damaged: one message per damaged file.
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
        """Print damaged files and the totals."""
        for line in self.damaged:
            console.print(line)
        valid, bad = plural(self.shards, "valid shard"), len(self.damaged)
        console.print(f"{self.folder}: {valid} with {self.series:,} series, {bad:,} damaged")


def _show(report: SynthReport, console: Console) -> None:
    console.print(
        f"{report.folder}: {report.series:,} series in {plural(report.shards, 'shard')}, {size(report.bytes)}"
    )
    if report.written:
        console.print(
            f"wrote {report.written:,} in {report.seconds:,.1f} s: {report.series_per_second:,.0f} series/s, "
            f"{report.mb_per_second:,.1f} MB/s"
        )
    else:
        console.print("nothing to do: all shards exist")
    for reason, count in report.left_out.items():
        if count:
            console.print(f"skipped {count:,} {reason} series of the files")
