"""Where the ETT tables are, and one thread per test."""

from pathlib import Path

import pytest

ETT_FOLDER = Path(__file__).parents[3].parent / "shared/data/benchmark/ETTh"


@pytest.fixture(scope="session")
def etth1():
    path = ETT_FOLDER / "ETTh1.csv"
    if not path.is_file():
        pytest.skip("no ETTh1.csv")
    return path
