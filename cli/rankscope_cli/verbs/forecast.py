"""``rankscope forecast``: forecasts of a user's series."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from rankscope import choices
from rankscope.errors import OptionError
from rankscope_cli import options as opt
from rankscope_cli.exits import say
from rankscope_cli.output import TABLE_SUFFIXES, Output
from rankscope_cli.progress import progress_bar, progress_lines
from rankscope_cli.tables import add_columns, figures, plain_table, print_table

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from rankscope_eval import StreamReport

SUFFIXES = (*TABLE_SUFFIXES, ".arrow")
_STREAM = "Stream: --out DIR"
LEVELS = (0.1, 0.5, 0.9)
SHOWN = 24
"""Rows per series that a terminal gets; a file or pipe gets all."""


def run(
    model: opt.Model = None,
    *,
    input: Annotated[str, opt.value("--input", "FILE", "Series: .csv, .parquet, .jsonl or .arrow.", short="-i")],
    horizon: opt.Horizon,
    quantiles: Annotated[
        list[str] | None, opt.value("--quantiles", "Q,…", "Levels in (0, 1); 0.1,0.5,0.9 by default.", short="-q")
    ] = None,
    freq: Annotated[str | None, opt.value("--freq", "F", "Frequency (h, D, W, M, …) if none is found.")] = None,
    season_length: Annotated[
        int | None, opt.count("--season-length", "Season of the baselines; else that of the frequency.")
    ] = None,
    id_column: Annotated[str | None, opt.value("--id-column", "NAME", "Column of series names.")] = None,
    time_column: Annotated[str | None, opt.value("--time-column", "NAME", "Column of times.")] = None,
    target_column: Annotated[str | None, opt.value("--target-column", "NAME", "Column of values.")] = None,
    context: Annotated[
        int | None, opt.count("--context", "Values that the model sees of a series; its own by default.")
    ] = None,
    num_samples: opt.Samples = 20,
    batch_size: opt.BatchSize = 32,
    out: Annotated[
        str | None,
        opt.value(
            "--out",
            "FILE|DIR",
            "Also write a file (.csv, .parquet, .arrow, .json), or write parts into a folder.",
            opt.OUTPUT,
            "-o",
        ),
    ] = None,
    chunk: Annotated[int | None, opt.count("--chunk", "Series per part; 4096 by default.", _STREAM)] = None,
    layout: Annotated[
        choices.PartLayout | None,
        opt.choice("--layout", choices.PartLayout, "One row per step (default) or per series.", _STREAM),
    ] = None,
    part_format: Annotated[
        choices.PartFormat | None,
        opt.choice("--format", choices.PartFormat, "Of the parts; parquet by default.", _STREAM),
    ] = None,
    on_error: Annotated[
        choices.OnDamage | None,
        opt.choice("--on-error", choices.OnDamage, "At a damaged row: stop (default), or leave it out.", _STREAM),
    ] = None,
    resume: Annotated[
        bool, opt.switch("--resume", "Go on behind the last whole part, if there is one.", _STREAM)
    ] = False,
    engine: opt.EngineName = "local",
    address: opt.Address = "",
    jobs: Annotated[
        int, opt.value("--jobs", "N", "Parts at a time on the cluster; 0: as many as fit.", opt.SPREAD, min=0)
    ] = 0,
    force: opt.Force = False,
    json: opt.Json = False,
    device: opt.Device = "auto",
    dtype: opt.Dtype = None,
    runtime: opt.Runtime = "auto",
    revision: opt.Revision = None,
    seed: opt.Seed = 0,
    debug: opt.Debug = False,
) -> None:
    """Forecast the series of a file: mean and quantiles.

    The file is long (id, time, value), wide (time and one column per series) or one row per series with a list. MODEL
    may also be naive, seasonal-naive, auto-ets or auto-theta.

    With --out DIR the file may be larger than memory: it is read in chunks, the rows of a series one after the other,
    and every chunk becomes a part, part-000000.parquet and on. A run that was stopped goes on with --resume and ends
    with the same bytes. A series without any number gets a forecast of NaN and a warning.

    Examples:
        rankscope forecast --input sales.csv --horizon 24
        rankscope forecast small/ --input sales.parquet --horizon 12 --quantiles 0.2,0.5,0.8 --out forecast.csv
        rankscope forecast bundled-bolt -i million.parquet -H 24 --out parts/ --on-error skip --resume
        rankscope forecast bundled-bolt -i million.parquet -H 24 --out parts/ --engine ray --address auto
    """
    from rankscope.series import Columns

    name = model or "bundled"
    what: dict[str, Any] = {
        "how": opt.forecasting(num_samples, batch_size, seed, device, dtype, runtime, revision),
        "quantiles": opt.numbers("quantiles", quantiles, LEVELS),
        "columns": Columns(id_column, time_column, target_column),
        "freq": freq,
        "season_length": season_length,
        "context": context,
    }
    stream = {"chunk": chunk, "shape": layout, "format": part_format, "on_error": on_error, "resume": resume or None}
    given = {name: value for name, value in stream.items() if value is not None}
    if out is not None and _names_folder(out):
        from rankscope.engine.pool import Engine

        where = Engine(engine, jobs, address)
        _stream(Output(json), name, input, horizon, out, engine=where, force=force, **what, **given)
        return
    if given or engine != "local":
        flags = {"shape": "layout", "on_error": "on-error"}
        name = next((flags.get(one, one) for one in given), "engine")
        raise OptionError(f"--{name} is of use for a folder of parts only: let --out name a folder, without a suffix.")
    from rankscope_eval import forecast_file

    with Output(json, out, force, SUFFIXES) as output:
        with progress_bar("forecasting"):
            frame = forecast_file(name, input, horizon, **what)
        forecast = Forecast(name, horizon, frame)
        _warn_of_nan(frame.loc[frame["mean"].isna(), "item_id"].nunique())
        output.deliver(forecast, forecast.show)


def _names_folder(out: str) -> bool:
    return out.endswith("/") or Path(out).is_dir() or not Path(out).suffix


def _warn_of_nan(count: int) -> None:
    if count:
        say(f"warning: {count:,} series hold no number in what the model sees: their forecasts are NaN.")


def _stream(output: Output, model: str, input: str, horizon: int, out: str, **options: Any) -> None:
    """Forecast into a folder of parts."""
    from rankscope_eval import forecast_stream

    with output:
        goes_on = "the same command with --resume goes on behind the last whole part"
        with progress_lines("opening the model", stopped=goes_on, begun=out) as progress:
            report = forecast_stream(model, input, horizon, out, progress=progress, **options)
        for row in report.named:
            say(f"left out: {row.reason}")
        if report.left_out > len(report.named):
            say(f"left out: {report.left_out - len(report.named):,} more, named in {out.rstrip('/')}/_parts.jsonl")
        _warn_of_nan(report.nan_only)
        output.deliver(report, lambda console: _show(report, console))
        print(f"wrote {report.parts:,} parts in {out}", file=sys.stderr)  # noqa: T201


def _show(report: StreamReport, console: Console) -> None:
    kept = f", {report.parts_kept:,} of them before" if report.parts_kept else ""
    left = f", {report.left_out:,} rows left out" if report.left_out else ""
    console.print(
        f"{report.model}, {report.horizon} steps: {report.series:,} series in {report.parts:,} parts{kept}{left}; "
        f"{report.series_per_second:,.0f} series/s, {report.seconds:,.0f} s",
        markup=False,
    )


@dataclass(frozen=True)
class Forecast:
    """A table of forecasts and the model that made it."""

    model: str
    horizon: int
    frame: pd.DataFrame

    SCHEMA: ClassVar = "rankscope/forecast@1"
    KEYS: ClassVar = ("model", "horizon", "series")

    @property
    def series(self) -> tuple[dict[str, Any], ...]:
        """One entry per series, one list per quantile."""
        levels = [name for name in self.frame.columns if name not in ("item_id", "timestamp", "mean")]
        return tuple(
            {
                "item_id": str(key),
                "timestamps": [str(stamp) for stamp in rows["timestamp"]],
                "mean": list(rows["mean"]),
                "quantiles": {level: list(rows[level]) for level in levels},
            }
            for key, rows in self.frame.groupby("item_id", sort=False)
        )

    def to_frame(self) -> pd.DataFrame:
        """One row per series and step."""
        return self.frame

    def show(self, console: Console) -> None:
        """Print the table: CSV where it is piped, else the first steps of every series."""
        if not console.is_terminal:
            console.file.write(self.frame.to_csv(index=False))
            return
        columns = list(self.frame.columns)
        table = plain_table(title=f"{self.model}, {self.horizon} steps")
        add_columns(table, columns, left=2)
        for key, rows in self.frame.groupby("item_id", sort=False):
            table.add_section()
            for row in rows.head(SHOWN).itertuples(index=False):
                table.add_row(
                    str(key), str(row[1]).removesuffix(" 00:00:00"), *(figures(float(value), 4) for value in row[2:])
                )
        print_table(table, console)
        if self.horizon > SHOWN:
            console.print(f"The first {SHOWN} steps of every series; --out FILE writes all.")
