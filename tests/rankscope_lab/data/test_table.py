"""Reading tables of variables: what is read, and what is refused with its place."""

import pandas as pd
import pytest

from rankscope.errors import DataError
from rankscope_lab.data.table import ETT, read_table


@pytest.fixture
def frame():
    times = pd.date_range("2020-01-01", periods=6, freq="h").astype(str)
    return pd.DataFrame({"date": times, "a": [1.5, 2, 3, 4, 5, 6], "b": range(6)})


def write(frame, tmp_path):
    path = tmp_path / "table.csv"
    frame.to_csv(path, index=False)
    return path


def test_columns_come_in_the_order_asked_for(frame, tmp_path):
    table = read_table(write(frame, tmp_path), ["b", "a"])
    assert table.columns == ("b", "a")
    assert table.values[:2].tolist() == [[0, 1.5], [1, 2]]
    assert read_table(tmp_path / "table.csv").columns == ("a", "b")
    assert table.name == "table"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda f: f.drop(columns="a"), r"no column 'a'; its variables are b"),
        (lambda f: f.drop(columns="date"), r"time column 'date' is not known"),
        (lambda f: f.assign(id="a"), r"series names in column 'id'"),
        (lambda f: f.drop(index=3), r"'a' has no value at 2020-01-01 03:00:00 \(2 such"),
        (lambda f: pd.concat([f.iloc[:3], f.iloc[2:]]), r"'date' has 2020-01-01 02:00:00 twice"),
        (lambda f: f.assign(a=[1, None, 3, 4, 5, None]), r"'a' has no value at 2020-01-01 01:00:00 \(2 such"),
        (lambda f: f.assign(a=["x", *f.a[1:]]), r"line 2: 'x' in series 'a' is not a number"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(frame, tmp_path, change, says):
    path = write(change(frame), tmp_path)
    with pytest.raises(DataError, match=says) as caught:
        read_table(path, ["a", "b"])
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_file_that_is_no_table(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        read_table(tmp_path / "no.csv")
    (tmp_path / "half.csv").write_text('date,a\n2020,1\n"')
    with pytest.raises(DataError, match=r"half\.csv"):
        read_table(tmp_path / "half.csv")


def test_ett_columns_are_those_of_the_file(etth1):
    table = read_table(etth1, ETT)
    assert table.values.shape == (17420, 7)
    assert table.values[0, -1] == 30.5310001373291
