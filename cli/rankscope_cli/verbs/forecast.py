"""``rankscope forecast``: forecasts of a user's series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankscope_cli.options import (
    BatchSize,
    Debug,
    Device,
    Dtype,
    Force,
    Json,
    Model,
    Revision,
    Runtime,
    Samples,
    Seed,
    Table,
    numbers,
)
from rankscope_cli.output import Output
from rankscope_cli.progress import progress_bar
from rankscope_cli.tables import add_columns, figures, plain_table, print_table
from rankscope_cli.verbs.eval import at_revision, forecaster_settings

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

LEVELS = (0.1, 0.5, 0.9)
SHOWN = 24
"""Rows per series that a terminal gets; a file or pipe gets all."""


def run(
    model: Model = None,
    *,
    input: Annotated[
        str, typer.Option("--input", "-i", metavar="FILE", help="Series: .csv, .parquet, .jsonl or .arrow.")
    ],
    horizon: Annotated[int, typer.Option("--horizon", "-H", metavar="STEPS", help="Steps to forecast.")],
    quantiles: Annotated[
        list[str] | None,
        typer.Option("--quantiles", "-q", metavar="Q,…", help="Levels in (0, 1); 0.1,0.5,0.9 by default."),
    ] = None,
    freq: Annotated[
        str | None,
        typer.Option("--freq", metavar="F", help="Frequency (h, D, W, M, …) if none is found."),
    ] = None,
    season_length: Annotated[
        int | None,
        typer.Option(
            "--season-length", min=1, metavar="N", help="Season of the baselines; else that of the frequency."
        ),
    ] = None,
    id_column: Annotated[
        str | None, typer.Option("--id-column", metavar="NAME", help="Column of series names.")
    ] = None,
    time_column: Annotated[str | None, typer.Option("--time-column", metavar="NAME", help="Column of times.")] = None,
    target_column: Annotated[
        str | None, typer.Option("--target-column", metavar="NAME", help="Column of values.")
    ] = None,
    num_samples: Samples = 20,
    batch_size: BatchSize = 32,
    out: Table = None,
    force: Force = False,
    json: Json = False,
    device: Device = "auto",
    dtype: Dtype = None,
    runtime: Runtime = "auto",
    revision: Revision = None,
    seed: Seed = 0,
    debug: Debug = False,
) -> None:
    """Forecast the series of a file: mean and quantiles of every step.

    The file is long (id, time, value), wide (time and one column per series) or one row per series with a list. MODEL
    may also be naive, seasonal-naive, auto-ets or auto-theta.

    Examples:
        rankscope forecast --input sales.csv --horizon 24
        rankscope forecast small/ --input sales.parquet --horizon 12 --quantiles 0.05,0.5,0.95 --out forecast.csv
    """
    from rankscope_eval import forecast_file

    settings = forecaster_settings(num_samples, batch_size, seed, device, dtype, runtime)
    with Output(json, out, force) as output:
        levels = numbers("quantiles", quantiles, LEVELS)
        with progress_bar("forecasting"):
            name = model or "bundled"
            frame = forecast_file(
                at_revision([name], revision, settings)[0],
                input,
                horizon,
                quantiles=levels,
                freq=freq,
                id_column=id_column,
                time_column=time_column,
                target_column=target_column,
                season_length=season_length,
                **settings,
            )
        forecast = Forecast(name, horizon, frame)
        output.deliver(forecast, forecast.show)


@dataclass(frozen=True)
class Forecast:
    """A table of forecasts and the model that made it."""

    model: str
    horizon: int
    frame: pd.DataFrame

    def to_json(self) -> dict[str, Any]:
        """The shape ``rankscope/forecast@1``: one entry per series, one list per quantile."""
        levels = [name for name in self.frame.columns if name not in ("item_id", "timestamp", "mean")]
        series = [
            {
                "item_id": str(key),
                "timestamps": [str(stamp) for stamp in rows["timestamp"]],
                "mean": rows["mean"].tolist(),
                "quantiles": {level: rows[level].tolist() for level in levels},
            }
            for key, rows in self.frame.groupby("item_id", sort=False)
        ]
        return {"schema": "rankscope/forecast@1", "model": self.model, "horizon": self.horizon, "series": series}

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
