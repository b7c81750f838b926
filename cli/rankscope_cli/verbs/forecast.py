"""``rankscope forecast``: forecast series from a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from rankscope import choices
from rankscope.errors import OptionError
from rankscope_cli import options as opt
from rankscope_cli.exits import say, warned
from rankscope_cli.output import TABLE_SUFFIXES, Output, refuse_input
from rankscope_cli.progress import progress_bar, progress_lines
from rankscope_cli.tables import add_columns, plain_table, print_table
from rankscope_eval.numbers import plural, significant

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from rankscope_eval import StreamReport

SUFFIXES = (*TABLE_SUFFIXES, ".arrow")
_STREAM = "Streaming (--out DIR)"
LEVELS = (0.1, 0.5, 0.9)
SHOWN = 24
"""Rows per series shown on a terminal; files and pipes get all."""


def run(
    model: opt.Model = None,
    *,
    input: Annotated[
        str, opt.value("--input", "FILE", "Series: .csv, .parquet, .jsonl or .arrow, or a folder.", opt.SERIES, "-i")
    ],
    horizon: opt.Horizon,
    quantiles: Annotated[
        list[str] | None,
        opt.value("--quantiles", "Q,…", "Quantile levels (default: 0.1,0.5,0.9).", short="-q"),
    ] = None,
    freq: opt.Freq = None,
    season_length: Annotated[
        int | None,
        opt.count(
            "--season-length",
            "Season length of local models (default: from the frequency).",
            opt.SERIES,
        ),
    ] = None,
    id_column: opt.IdColumn = None,
    time_column: opt.TimeColumn = None,
    target_column: opt.TargetColumn = None,
    context: Annotated[int | None, opt.count("--context", "Context length (default: the model's).")] = None,
    num_samples: opt.Samples = 20,
    batch_size: opt.BatchSize = 32,
    out: Annotated[
        str | None,
        opt.value(
            "--out",
            "FILE|DIR",
            "Also write a file (.csv, .parquet, .arrow, .json), or stream parts to a folder.",
            opt.OUTPUT,
            "-o",
        ),
    ] = None,
    chunk: Annotated[int | None, opt.count("--chunk", "Series per part (default: 4096).", _STREAM)] = None,
    layout: Annotated[
        choices.PartLayout | None,
        opt.choice("--layout", choices.PartLayout, "One row per step (default), or one list per series.", _STREAM),
    ] = None,
    part_format: Annotated[
        choices.PartFormat | None,
        opt.choice("--format", choices.PartFormat, "File format of the parts (default: parquet).", _STREAM),
    ] = None,
    csv_safe: Annotated[
        bool,
        opt.switch("--csv-safe", "Put ' before item ids in CSV that a spreadsheet would read as formulas.", opt.OUTPUT),
    ] = False,
    on_error: Annotated[
        choices.OnDamage | None,
        opt.choice("--on-error", choices.OnDamage, "On a damaged row: stop (default) or skip its series.", _STREAM),
    ] = None,
    resume: Annotated[bool, opt.switch("--resume", "Resume after the last complete part.", _STREAM)] = False,
    engine: opt.EngineName = "local",
    address: opt.Address = "",
    jobs: Annotated[
        int, opt.value("--jobs", "N", "Concurrent parts on the cluster; 0: as many as fit.", opt.SPREAD, min=0)
    ] = 0,
    force: opt.Force = False,
    json: opt.Json = False,
    device: opt.Device = "auto",
    dtype: opt.ComputeDtype = None,
    runtime: opt.Runtime = "auto",
    revision: opt.Revision = None,
    seed: opt.Seed = 0,
    debug: opt.Debug = False,
) -> None:
    """Forecast series from a file: mean and quantiles.

    The file may be long (id, time, value), wide (time and one column per series), or hold one row per series with a
    list of values. MODEL may also be naive, seasonal-naive, auto-ets or auto-theta.

    With --out DIR the file may be larger than memory: it is read in chunks (the rows of a series must be contiguous)
    and each chunk is written as a part, starting with part-000000.parquet. --resume continues an interrupted run with
    byte-identical output. A series without any values yields NaN forecasts and a warning.

    Examples:
        rankscope forecast amazon/chronos-bolt-small --input sales.csv --horizon 24
        rankscope forecast small/ --input sales.parquet --horizon 12 --quantiles 0.2,0.5,0.8 --out forecast.csv
        rankscope forecast bundled-bolt -i million.parquet -H 24 --out parts/ --on-error skip --resume
        rankscope forecast bundled-bolt -i million.parquet -H 24 --out parts/ --engine ray --address auto
    """
    from rankscope.engine.pool import Engine
    from rankscope.series import Columns

    where = Engine(engine, jobs, address)
    if engine == "local" and jobs > 1:
        raise OptionError("--jobs requires --engine ray: on this machine parts are computed one at a time.")
    name = model or "bundled"
    _refuse_idle(name, season_length, {"dtype": dtype, "runtime": runtime, "revision": revision})
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
    refuse_input(out, input)
    if out is not None and _names_folder(out):
        _stream(Output(json), name, input, horizon, out, engine=where, force=force, csv_safe=csv_safe, **what, **given)
        return
    if given or engine != "local":
        flags = {"shape": "layout", "on_error": "on-error"}
        name = next((flags.get(one, one) for one in given), "engine")
        raise OptionError(f"--{name} requires --out DIR, a folder without a suffix.")
    if csv_safe and (json or (out is not None and Path(out).suffix.lower() != ".csv")):
        raise OptionError("--csv-safe is about CSV: leave it out, or write CSV.")
    from rankscope_eval import forecast_file
    from rankscope_eval.forecast import spreadsheet_safe

    with Output(json, out, force, SUFFIXES) as output:
        with warned(), progress_bar("forecasting"):
            frame = forecast_file(name, input, horizon, **what)
        if csv_safe:
            frame["item_id"] = frame["item_id"].map(spreadsheet_safe)
        forecast = Forecast(name, horizon, frame)
        _warn_of_nan(frame.loc[frame["mean"].isna(), "item_id"].nunique())
        output.deliver(forecast, forecast.show)


def _refuse_idle(model: str, season_length: int | None, about_weights: dict[str, str | None]) -> None:
    """Raise `OptionError` for an option that this kind of model does not look at."""
    from rankscope_eval.baselines import BASELINES

    if season_length is not None and (model not in BASELINES or model == "naive"):
        why = "repeats the last value" if model == "naive" else "finds seasons itself"
        raise OptionError(f"--season-length has no effect: {model} {why}; leave it out.")
    opt.refuse_without_weights([model], about_weights)


def _names_folder(out: str) -> bool:
    return out.endswith("/") or Path(out).is_dir() or not Path(out).suffix


def _warn_of_nan(count: int) -> None:
    if count:
        say(f"warning: {count:,} series without values in the context: forecasts are NaN.")


def _stream(output: Output, model: str, input: str, horizon: int, out: str, **options: Any) -> None:
    """Stream forecasts to a folder of parts."""
    from rankscope_eval import forecast_stream

    with output:
        goes_on = "rerun with --resume to continue after the last complete part"
        with warned(), progress_lines("opening the model", stopped=goes_on, begun=out) as progress:
            report = forecast_stream(model, input, horizon, out, progress=progress, **options)
        for row in report.named:
            say(f"skipped: {row.reason}")
        if report.left_out > len(report.named):
            say(f"skipped: {report.left_out - len(report.named):,} more, listed in {out.rstrip('/')}/_parts.jsonl")
        _warn_of_nan(report.nan_only)
        output.deliver(report, lambda console: _show(report, console))
        written = report.parts - report.parts_kept
        say(f"wrote {plural(written, 'part')} in {out}" if written else f"{out} is finished: nothing to resume.")


def _show(report: StreamReport, console: Console) -> None:
    kept = f" ({report.parts_kept:,} from before)" if report.parts_kept else ""
    left = f", {plural(report.left_out, 'row')} skipped" if report.left_out else ""
    console.print(
        f"{report.model}, {report.horizon} steps: {report.series:,} series in {plural(report.parts, 'part')}{kept}"
        f"{left}; {report.series_per_second:,.0f} series/s, {report.seconds:,.0f} s"
    )


@dataclass(frozen=True)
class Forecast:
    """Table of forecasts with the model's name."""

    model: str
    horizon: int
    frame: pd.DataFrame

    SCHEMA: ClassVar = "rankscope/forecast@1"
    KEYS: ClassVar = ("model", "horizon", "series")

    @property
    def series(self) -> tuple[dict[str, Any], ...]:
        """Forecasts per series, with one list per quantile."""
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
        """Return one row per series and step."""
        return self.frame

    def to_csv(self) -> str:
        """Return the table as CSV."""
        from rankscope_eval.forecast import CSV_FLOAT

        return self.frame.to_csv(index=False, float_format=CSV_FLOAT)

    def show(self, console: Console) -> None:
        """Print CSV if piped, else a table with the first steps of every series."""
        if not console.is_terminal:
            console.file.write(self.to_csv())
            return
        columns = list(self.frame.columns)
        table = plain_table(title=f"{self.model}, {self.horizon} steps")
        add_columns(table, columns, left=2)
        for key, rows in self.frame.groupby("item_id", sort=False):
            table.add_section()
            for row in rows.head(SHOWN).itertuples(index=False):
                cells = [significant(float(value), 4) for value in row[2:]]
                table.add_row(str(key), str(row[1]).removesuffix(" 00:00:00"), *cells)
        print_table(table, console)
        if self.horizon > SHOWN:
            console.print(f"Showing the first {SHOWN} steps of every series; --out FILE writes all.")
