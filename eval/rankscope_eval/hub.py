"""Data sets of the Hugging Face hub, read the way chronos-forecasting's own evaluation reads them."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankscope.errors import DataError
from rankscope_eval.series import Series, infer_freq, period

SCRIPTED = "autogluon/chronos_datasets_extra"
"""A repository that consists of a loading script; scripts are never run here."""


def hub_series(repo: str, name: str) -> list[Series]:
    """Series of data set ``name`` of a hub repository; each list column is one univariate series of its row.

    Values pass through single precision, as they do where the published scores were computed.

    Raises:
        DataError: the package ``datasets``, the network or the data set is missing.
    """
    if repo == SCRIPTED:
        raise DataError(
            f"{repo} generates {name!r} with a script, which is not run here: put the CSV files of "
            f"github.com/zhouhaoyi/ETDataset into DATA/{name}/ and give --data DATA."
        )
    try:
        import datasets
    except ImportError as error:
        raise DataError(
            f"data set {name!r} comes from {repo} through the package `datasets`, which is not installed: "
            f"pip install 'rankscope[hub]', or put {name}.parquet into a folder and give --data."
        ) from error
    try:
        table = datasets.load_dataset(repo, name, split="train").with_format("numpy")
    except Exception as error:  # hub, network, cache and parser each raise their own
        reason = (str(error).strip().splitlines() or [""])[0]
        raise DataError(
            f"data set {name!r} cannot be had from {repo} ({type(error).__name__}: {reason[:160]}): "
            f"check the network, or put {name}.parquet into a folder and give --data."
        ) from error
    return table_to_series(table, f"{repo}/{name}")


def table_to_series(table: Any, where: str) -> list[Series]:
    """Series of a numpy-formatted ``datasets.Dataset`` with a ``timestamp`` list column.

    Raises:
        DataError: there is no timestamp column, no list of numbers, or no frequency to be told.
    """
    import pandas as pd

    columns = list(table.features)
    if "timestamp" not in columns or len(table) == 0:
        raise DataError(f"{where} has no rows with a timestamp column; its columns are {', '.join(columns)}.")
    first = table[0]
    fields = [c for c in columns if c != "timestamp" and _is_numbers(first[c])]
    if not fields:
        raise DataError(f"{where} has no list column of numbers; its columns are {', '.join(columns)}.")
    freq = infer_freq(pd.DatetimeIndex(first["timestamp"]))  # one frequency for the whole set, as published
    if freq is None:
        raise DataError(f"{where}: the frequency cannot be told from the timestamps of its first row.")
    series = []
    for number, row in enumerate(table):
        base = str(row["id"]) if "id" in row else f"T{number}"
        start = period(row["timestamp"][0], freq, where)
        for field in fields:
            item_id = base if len(fields) == 1 else f"{base}_{field}"
            series.append(Series(item_id, start, np.asarray(row[field], dtype=np.float32)))
    return series


def _is_numbers(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "fiu"
