"""The ETT table that tests of several studies read."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def etth1(shared_folder: Path) -> Path:
    return shared_folder / "data/benchmark/ETTh/ETTh1.csv"
