"""Ten short series as tables, and a folder of forecasts read again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from rankscope.io.run_store import LOCK

SERIES = 10


def _values() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {f"s{n}": np.round(rng.normal(10, 3, size=5 + n % 4), 6) for n in range(SERIES)}


def _list_frame() -> pd.DataFrame:
    target = [one.tolist() for one in _values().values()]
    return pd.DataFrame({"item_id": list(_values()), "start": "2020-01-01", "freq": "D", "target": target})


def _long_frame() -> pd.DataFrame:
    parts = [
        pd.DataFrame({"item_id": key, "timestamp": pd.date_range("2020-01-01", periods=len(v)), "target": v})
        for key, v in _values().items()
    ]
    return pd.concat(parts, ignore_index=True)


def _whole(out: Path) -> pd.DataFrame:
    """All parts of a folder as one table."""
    exact = partial(pd.read_csv, float_precision="round_trip")
    read: dict[str, Any] = {".parquet": pd.read_parquet, ".csv": exact, ".arrow": pd.read_feather}
    parts = [read[path.suffix](path) for path in sorted(out.glob("part-*"))]
    return pd.concat(parts, ignore_index=True).assign(timestamp=lambda frame: pd.to_datetime(frame["timestamp"]))


def _content(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir() if path.name != LOCK}


def _jsonl(tmp_path: Path, line: str, place: int = 5) -> Path:
    rows = [json.dumps(row) for row in _list_frame().to_dict("records")]
    rows[place - 1] = line
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def values() -> Callable[..., Any]:
    return _values


@pytest.fixture
def list_frame() -> Callable[..., Any]:
    return _list_frame


@pytest.fixture
def long_frame() -> Callable[..., Any]:
    return _long_frame


@pytest.fixture
def jsonl() -> Callable[..., Any]:
    return _jsonl


@pytest.fixture
def whole() -> Callable[..., Any]:
    return _whole


@pytest.fixture
def content() -> Callable[..., Any]:
    return _content


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Sums by one thread, as Ray's workers make them: with more the last digits differ."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def listed(tmp_path: Path, write_table: Callable[[pd.DataFrame, Path], Path]) -> Path:
    return write_table(_list_frame(), tmp_path / "lists.parquet")
