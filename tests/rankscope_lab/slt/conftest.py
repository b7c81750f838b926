"""A small table of three variables with a daily season."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rankscope_lab.data.table import read_table
from rankscope_lab.data.windows import FIFTHS, ForecastData, forecast_data

LOOKBACK, HORIZON = 48, 8


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with ``made.csv``: 300 hours."""
    folder = tmp_path_factory.mktemp("tables")
    rng, t = np.random.default_rng(0), np.arange(300)
    wave = np.sin(2 * np.pi * t[:, None] / 24 + np.array([0.0, 1.0, 2.0])) + rng.normal(0, 0.2, (300, 3))
    frame = pd.DataFrame(wave.round(4), columns=["a", "b", "c"])
    frame.insert(0, "date", pd.date_range("2020-01-01", periods=300, freq="h"))
    frame.to_csv(folder / "made.csv", index=False)
    return folder


@pytest.fixture(scope="session")
def small_data(tables: Path) -> ForecastData:
    """Its windows: 48 steps to look back, 8 to forecast."""
    return forecast_data(read_table(tables / "made.csv"), FIFTHS, LOOKBACK, HORIZON)


@pytest.fixture(autouse=True)
def torchs_own_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train without compiled functions: those have tests of their own, and need a compiler."""
    monkeypatch.setattr("rankscope_lab.slt.training.accelerate", lambda model: False)
