"""Forecast a chunk of rows and encode the result; runs in local processes and on a cluster."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from rankscope.errors import CheckpointError, DataError
from rankscope.series import Series
from rankscope.series.formats import Rows
from rankscope.series.layout import TableLayout
from rankscope.series.reader import BadRow, to_series
from rankscope_eval.baselines import BASELINES
from rankscope_eval.forecast import CSV_FLOAT, forecast_all, forecast_rows, forecast_times, spreadsheet_safe
from rankscope_eval.forecasters import Forecaster, Forecasting, open_forecaster, quiet_imports


@dataclass(frozen=True)
class Job:
    """Settings of a streaming run.

    Attributes:
        model: model name or an open forecaster.
        weights: fingerprint of the model's weights.
        how: forecasting settings; the seed applies to the first chunk, and seeds of later chunks derive from it.
        horizon: forecast horizon in steps.
        levels: quantile levels, ascending.
        season_length: season length of the baselines (default: from the frequency).
        context: context length (default: the model's).
        stop: stop at a damaged row.
        path: path of the input, for errors.
        unit: name of a row in error messages.
        layout: layout of the input.
        shape: ``rows`` or ``lists``, see `encode`.
        format: file format of the parts.
        csv_safe: see `spreadsheet_safe`.
    """

    model: str | Forecaster
    weights: str
    how: Forecasting
    horizon: int
    levels: tuple[float, ...]
    season_length: int | None
    context: int | None
    stop: bool
    path: str
    unit: str
    layout: TableLayout
    shape: str
    format: str
    csv_safe: bool = False


@dataclass(frozen=True)
class Part:
    """Forecasts of a chunk.

    Attributes:
        number: chunk number.
        content: encoded file; empty if damaged rows stop the run.
        series: number of series forecast.
        nan_only: number of series without values, with NaN forecasts.
        bad: damaged rows, skipped or stopping the run.
    """

    number: int
    content: bytes
    series: int
    nan_only: int
    bad: tuple[BadRow, ...]


def forecast_chunk(job: Job, chunk: Rows) -> Part:
    """Forecast the series of a chunk; deterministic, independent of where it runs.

    Raises:
        RankscopeError: the model cannot be opened or fails on these series.
    """
    read, bad = to_series(chunk, job.layout, job.path, job.unit)
    series = []
    for one in read:
        try:
            one.check_times(job.horizon)  # too late ones are refused before the forecasts
            series.append(one)
        except DataError as error:
            bad.append(BadRow(0, one.item_id, f"{job.path}: {error}"))
    if bad and job.stop:
        return Part(chunk.number, b"", 0, 0, tuple(bad))
    model = job.model if isinstance(job.model, Forecaster) else _model_of_run(job.model, job.how, job.weights)
    forecaster = replace(model, seed=chunk_seed(job.how.seed, chunk.number))
    how = (job.context, job.horizon, job.levels, job.season_length, f"{job.path}: ")
    values, there, lost = forecast_all(forecaster, series, *how)
    for one in (series[place] for place in np.flatnonzero(lost).tolist()):
        reason = f"{job.path}: model {forecaster.name!r} returned NaN or infinite values for series {one.item_id!r}."
        bad.append(BadRow(0, one.item_id, reason))
    if bad and job.stop:
        return Part(chunk.number, b"", 0, 0, tuple(bad))
    kept = [one for one, gone in zip(series, lost, strict=True) if not gone]
    if job.csv_safe:
        kept = [replace(one, item_id=spreadsheet_safe(one.item_id)) for one in kept]
    content = encode(kept, values[~lost], job.levels, job.shape, job.format)
    return Part(chunk.number, content, len(kept), int((~there).sum()), tuple(bad))


@cache
def _model_of_run(model: str, how: Forecasting, weights: str) -> Forecaster:
    """Open a model by name on a worker, once per process.

    Raises:
        CheckpointError: a node has another model of that name than the run began with.
    """
    from rankscope.checkpoints import open_checkpoint
    from rankscope.compress.calibration import fingerprint

    quiet_imports()
    if model in BASELINES:
        return open_forecaster(model, how)
    checkpoint = open_checkpoint(model, revision=how.revision)
    if fingerprint(checkpoint) != weights:
        raise CheckpointError(f"{model} on {platform.node()} is not the model that the run began with: copy it there.")
    return open_forecaster(checkpoint, how)


def chunk_seed(seed: int, number: int) -> int:
    """Return the seed of a chunk; the first chunk uses ``seed`` itself.

    >>> chunk_seed(7, 0), chunk_seed(7, 1) != chunk_seed(7, 2)
    (7, True)
    """
    return int(np.random.SeedSequence((seed, number)).generate_state(1, np.uint64)[0] >> 1) if number else seed


def encode(series: Sequence[Series], values: np.ndarray, levels: Sequence[float], shape: str, format: str) -> bytes:
    """Encode forecasts as a table; NaN stays NaN.

    Args:
        series: input series.
        values: output of `forecast_values`.
        levels: quantile levels.
        shape: ``rows``, one row per series and step (item_id, timestamp, mean, a column per quantile), or ``lists``,
            one row per series with list columns, the timestamp of the first step and the frequency.
        format: ``parquet``, ``csv`` (``rows`` only) or ``arrow``.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = _rows(series, values, levels) if shape == "rows" else _lists(series, values, levels)
    if format == "csv":
        frame = table.to_pandas()
        hours = [one.start.freqstr.lstrip("0123456789") in ("h", "min", "s") for one in series]
        stamps, steps = frame["timestamp"], values.shape[-1]
        odd = (stamps != stamps.dt.normalize()).to_numpy().reshape(len(series), steps).any(axis=1)
        times = stamps.map(str).astype(str)  # written series by series, so that a part does not depend on its chunk
        frame["timestamp"] = times.where(np.repeat(odd | np.array(hours, dtype=bool), steps), times.str[:10])
        text: str = frame.to_csv(index=False, float_format=CSV_FLOAT)
        return text.encode()
    sink = pa.BufferOutputStream()
    if format == "parquet":
        pq.write_table(table, sink, compression="zstd")
    else:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    return bytes(sink.getvalue())


def _rows(series: Sequence[Series], values: np.ndarray, levels: Sequence[float]) -> Any:
    import pyarrow as pa

    frame = forecast_rows(series, values, levels)
    columns = {name: pa.array(frame[name].to_numpy()) for name in frame.columns[2:]}
    times = pa.array(frame["timestamp"].to_numpy(), type=pa.timestamp("ns"))
    return pa.table({"item_id": pa.array(frame["item_id"], type=pa.string()), "timestamp": times, **columns})


def _lists(series: Sequence[Series], values: np.ndarray, levels: Sequence[float]) -> Any:
    import pyarrow as pa

    steps = values.shape[-1]
    ends = pa.array(np.arange(0, (len(series) + 1) * steps, steps, dtype=np.int32))
    columns = {
        name: pa.ListArray.from_arrays(ends, pa.array(np.ascontiguousarray(values[:, place]).reshape(-1)))
        for place, name in enumerate(["mean", *map(str, levels)])
    }
    return pa.table(
        {
            "item_id": pa.array([one.item_id for one in series], type=pa.string()),
            "timestamp": pa.array(forecast_times(series, 1).to_numpy(), type=pa.timestamp("ns")),
            "freq": pa.array([one.start.freqstr for one in series], type=pa.string()),
            **columns,
        }
    )
