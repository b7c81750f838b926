from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rankscope.errors import DataError
from rankscope.series import corpus, series_from_file

A = np.array([1.0, 2.5, np.nan, 4.0])
B = np.array([10.0, -0.1234567890123456, 30.0, 40.0])


def long_layout() -> pd.DataFrame:
    times = pd.date_range("2020-01-01", periods=4, freq="D").strftime("%Y-%m-%d")
    pairs = (("b", B), ("a", A))
    parts = [pd.DataFrame({"item_id": name, "timestamp": times, "target": x}) for name, x in pairs]
    return pd.concat(parts, ignore_index=True)


def wide_layout() -> pd.DataFrame:
    dates = [f"2020-01-0{day}" for day in (1, 2, 3, 4)]
    return pd.DataFrame({"date": dates, "b": B, "note": "text", "a": A})


def list_layout() -> pd.DataFrame:
    return pd.DataFrame({"item_id": ["b", "a"], "start": "2020-01-01", "target": [list(B), list(A)]})


LAYOUTS = (long_layout, wide_layout, list_layout)
FILES = ("x.parquet", "x.csv", "x.jsonl", "x.arrow", "stream.arrow")
CASES = [(name, layout) for name in FILES for layout in LAYOUTS if (name, layout) != ("x.csv", list_layout)]


@pytest.mark.parametrize(("name", "layout"), CASES)
def test_every_layout_in_every_format(
    tmp_path: Path, write_table: Callable[..., Path], name: str, layout: Callable[[], pd.DataFrame]
) -> None:
    table = series_from_file(write_table(layout(), tmp_path / name))
    assert table.ids == ("b", "a")
    for got, want in zip(table.values, (B, A), strict=True):
        assert got.dtype == np.float64
        np.testing.assert_array_equal(got, want)


def test_long_rows_are_sorted_by_time(tmp_path: Path) -> None:
    long_layout().iloc[::-1].to_csv(tmp_path / "x.csv", index=False)
    table = series_from_file(tmp_path / "x.csv")
    np.testing.assert_array_equal(dict(zip(table.ids, table.values, strict=True))["b"], B)


def test_several_list_columns_are_several_series(tmp_path: Path) -> None:
    times = list(pd.date_range("2020", periods=4))
    frame = pd.DataFrame({"id": ["s"], "timestamp": [times], "HUFL": [B], "OT": [A]})
    frame.to_parquet(tmp_path / "x.parquet")
    assert series_from_file(tmp_path / "x.parquet").ids == ("s_HUFL", "s_OT")


def test_ragged_lists_keep_their_lengths(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"target": [1, 2, 3]}\n{"target": [4.5, null, "NaN", 5]}\n')
    table = series_from_file(tmp_path / "x.jsonl")
    assert [values.size for values in table.values] == [3, 4]
    np.testing.assert_array_equal(table.values[1], [4.5, np.nan, np.nan, 5])


BAD = {
    "empty": ("x.csv", "", "is empty"),
    "only a header": ("x.csv", "a,b\n", "no rows"),
    "no numeric column": ("x.csv", "date,name\n2020-01-01,foo\n", "no numeric column: found date, name"),
    "all-NaN": ("x.csv", "a,b\n1,\n2,\n", "series 'b' has no observed value, all 2 are NaN"),
    "null only": ("x.jsonl", '{"id": 1, "target": null}\n', "all 1 are NaN"),
    "empty list": ("x.jsonl", '{"target": [1, 2]}\n{"target": []}\n', "series '1' is empty"),
    "infinite": ("x.csv", "a\n1\ninf\n", "infinite value at position 1"),
    "no date": (
        "x.csv",
        "id,date,target\n1,2020-01-01,1\n1,soon,2\n",
        "'date' holds a value that is no date",
    ),
    "broken JSON": ("x.jsonl", '{"target": [1, 2\n', "cannot be read as jsonl"),
    "broken Parquet": ("x.parquet", "PAR1 no", "cannot be read as parquet"),
    "broken Arrow": ("x.arrow", "nothing", "cannot be read as arrow"),
    "broken CSV": ("x.csv", "a,b\n1,2\n1,2,3,4\n", "cannot be read as csv"),
    "unknown format": ("x.xlsx", "a", "format '.xlsx' is not known. Choose from .parquet"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_get_one_line(tmp_path: Path, case: str) -> None:
    name, text, message = BAD[case]
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError) as caught:
        series_from_file(tmp_path / name)
    assert message in str(caught.value)
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_file_and_too_short_series(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a file"):
        series_from_file(tmp_path / "none.csv")
    wide_layout().to_csv(tmp_path / "x.csv", index=False)
    with pytest.raises(DataError, match="'b' is too short: 4 values, at least 5 are needed"):
        series_from_file(tmp_path / "x.csv", min_length=5)


def test_user_corpus_cuts_windows(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    pd.DataFrame({"a": np.arange(50.0), "b": np.arange(100.0, 150.0)}).to_csv(path, index=False)
    x = corpus("user", n=40, length=8, seed=2, file=path).numpy()
    np.testing.assert_array_equal(np.diff(x, axis=1), 1)
    assert (x < 50).all(axis=1).any()
    assert (x >= 100).all(axis=1).any()
    with pytest.raises(DataError, match="longest series has 50 values but length is 51"):
        corpus("user", n=1, length=51, file=path)


def test_windows_without_an_observed_value_are_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    values = np.full(40, np.nan)
    values[10:12] = 1.0
    pd.DataFrame({"a": values}).to_csv(path, index=False)
    x = corpus("user", n=8, length=6, file=path).numpy()
    assert (~np.isnan(x)).any(axis=1).all()


def test_published_benchmark_files_read(shared_folder: Path) -> None:
    benchmark_data = shared_folder / "data" / "benchmark"
    table = series_from_file(benchmark_data / "nn5.parquet")
    assert len(table) == 111
    ett = series_from_file(benchmark_data / "ETTh" / "ETTh1.csv")
    assert ett.ids == ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")
