import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rankscope.errors import DataError
from rankscope_eval.sources import hub_series, table_to_series


class Table(list):
    """The little of a numpy-formatted ``datasets.Dataset`` that is read."""

    @property
    def features(self) -> list[str]:
        return list(self[0]) if self else []


def rows(freq: str = "QS-OCT") -> Table:
    stamps = pd.date_range("2000-01-01", periods=8, freq=freq).to_numpy()
    value = np.arange(8, dtype=np.float32) + np.float32(0.1)
    return Table({"id": f"T{i}", "timestamp": stamps, "target": value + i, "other": -value, "n": 3} for i in range(2))


def test_each_list_of_numbers_is_a_series_in_single_precision() -> None:
    series = table_to_series(rows(), "here")
    assert [one.item_id for one in series] == ["T0_target", "T0_other", "T1_target", "T1_other"]
    assert all(one.target.dtype == np.float32 for one in series)
    assert series[0].start == pd.Period("2000-01", freq="Q")


def test_a_real_dataset_is_read(tmp_path: Any) -> None:
    import datasets

    stamps = list(pd.date_range("2000-01-01", periods=5))
    table = datasets.Dataset.from_dict({"id": ["a"], "timestamp": [stamps], "target": [[0.1, 2.0, np.nan, 4.0, 5.0]]})
    (one,) = table_to_series(table.with_format("numpy"), "here")
    assert one.start == pd.Period("2000-01-01", freq="D")
    np.testing.assert_array_equal(one.target, np.array([0.1, 2, np.nan, 4, 5], np.float32))


def test_tables_without_series_are_refused() -> None:
    with pytest.raises(DataError, match="timestamp"):
        table_to_series(Table([{"id": "a", "target": np.ones(3)}]), "here")
    with pytest.raises(DataError, match="no list column of numbers"):
        table_to_series(Table([{"timestamp": rows()[0]["timestamp"], "n": 1}]), "here")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"pip install 'rankscope\[hub\]', or put m5.parquet into a folder"):
        hub_series("autogluon/chronos_datasets", "m5")


def test_an_unreachable_hub_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise ConnectionError("no route\nto host")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=fail))
    with pytest.raises(DataError, match=r"ConnectionError: no route.*check the network") as caught:
        hub_series("autogluon/chronos_datasets", "m5")
    assert "\n" not in str(caught.value)


def test_scripts_are_not_run() -> None:
    with pytest.raises(DataError, match="a script, which is not run here"):
        hub_series("autogluon/chronos_datasets_extra", "ETTh")
