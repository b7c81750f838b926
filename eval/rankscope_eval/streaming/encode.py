"""Forecasts as the bytes of a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rankscope.series import Series
from rankscope_eval.forecast import forecast_rows, forecast_times


def encode(series: Sequence[Series], values: np.ndarray, levels: Sequence[float], shape: str, format: str) -> bytes:
    """A table of forecasts in a format; NaN stays NaN.

    Args:
        series: what was forecast.
        values: of `forecast_values`.
        levels: of the quantiles.
        shape: ``rows``, one per series and step (item_id, timestamp, mean, a column per quantile), or ``lists``, one
            row per series with a list in every column of forecasts; its timestamp is that of the first step, and its
            freq tells the others.
        format: ``parquet``, ``csv`` (``rows`` only) or ``arrow``.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = _rows(series, values, levels) if shape == "rows" else _lists(series, values, levels)
    if format == "csv":
        text: str = table.to_pandas().to_csv(index=False)
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
