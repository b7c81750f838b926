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
        (lambda f: f.drop(columns="a"), r"no column 'a'; its columns are date, b"),
        (lambda f: f.drop(columns="date"), r"no column 'date'"),
        (lambda f: f.drop(index=3), r"row 5: 2020-01-01 04:00:00 leaves a gap after 2020-01-01 02:00:00.*1 such"),
        (lambda f: pd.concat([f.iloc[:3], f.iloc[2:]]), r"row 5: 2020-01-01 02:00:00 repeats or goes back"),
        (lambda f: f.assign(date=[*f.date[:5], "noon"]), r"row 7: 'noon' in 'date' is not a time"),
        (lambda f: f.assign(a=[1, None, 3, 4, 5, None]), r"row 3, column 'a': the value is missing \(2 such there"),
        (lambda f: f.assign(a=["x", *f.a[1:]]), r"row 2, column 'a': the value is 'x', not a finite number"),
        (lambda f: f.assign(b=[float("inf"), *f.b[1:]]), r"row 2, column 'b'.*not a finite number"),
        (lambda f: f.iloc[:1], r"1 rows of data"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(frame, tmp_path, change, says):
    path = write(change(frame), tmp_path)
    with pytest.raises(DataError, match=says) as caught:
        read_table(path, ["a", "b"])
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_file_that_is_no_table(tmp_path):
    with pytest.raises(DataError, match="there is no file"):
        read_table(tmp_path / "no.csv")
    (tmp_path / "half.csv").write_text('date,a\n2020,1\n"')
    with pytest.raises(DataError, match=r"half\.csv"):
        read_table(tmp_path / "half.csv")


def test_ett_columns_are_those_of_the_file(etth1):
    table = read_table(etth1, ETT)
    assert table.values.shape == (17420, 7)
    assert table.values[0, -1] == 30.5310001373291
