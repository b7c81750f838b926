"""Splits, scaling and windows against slices made by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from rankscope.errors import DataError, OptionError
from rankscope_lab.data.table import ETT, VariableTable, read_table
from rankscope_lab.data.windows import (
    FIFTHS,
    MONTHS,
    Windows,
    forecast_data,
    split_rows,
    steps_per_day,
)


def write_table(
    folder: Path, rows: int = 300, columns: tuple[str, ...] = ("a", "b"), step: str = "h", name: str = "made"
) -> Path:
    values = np.random.default_rng(0).normal(3.0, 2.0, (rows, len(columns))).round(3)
    frame = pd.DataFrame(values, columns=list(columns))
    frame.insert(0, "date", pd.date_range("2020-01-01", periods=rows, freq=step))
    file = folder / f"{name}.csv"
    frame.to_csv(file, index=False)
    return file


@pytest.fixture
def table(tmp_path: Path) -> VariableTable:
    return read_table(write_table(tmp_path))


def test_fifths_are_floored_from_the_end(tmp_path: Path) -> None:
    parts = split_rows(read_table(write_table(tmp_path, 304)), FIFTHS)
    assert [len(part) for part in (parts.train, parts.validation, parts.test)] == [184, 60, 60]
    assert (parts.train.start, parts.validation.start, parts.test.start, parts.test.stop) == (0, 184, 244, 304)


def test_ett_has_months_and_other_tables_have_shares(tmp_path: Path) -> None:
    ett = split_rows(read_table(write_table(tmp_path, 1900, ETT, "8h")), MONTHS)
    assert [len(part) for part in (ett.train, ett.validation, ett.test)] == [12 * 90, 4 * 90, 4 * 90]
    other = split_rows(read_table(write_table(tmp_path, 1003)), MONTHS)
    assert [len(part) for part in (other.train, other.validation, other.test)] == [702, 101, 200]


def test_etth1_has_the_published_numbers_of_windows(etth1: Path) -> None:
    whole = read_table(etth1)
    released = forecast_data(whole, FIFTHS, 512, 96)
    assert [len(part.values) for part in (released.train, released.validation, released.test)] == [10452, 3484, 3484]
    assert (len(released.train), len(released.test)) == (9845, 2877)
    field = split_rows(whole, MONTHS)
    assert [len(part) for part in (field.train, field.validation, field.test)] == [8640, 2880, 2880]
    reaching = forecast_data(whole, MONTHS, 512, 96, reach_back=True)
    assert [len(part) for part in (reaching.train, reaching.validation, reaching.test)] == [8033, 2785, 2785]
    assert released.season == 24


def test_scaling_uses_training_rows_alone(table: VariableTable) -> None:
    data = forecast_data(table, FIFTHS, 20, 5)
    known = table.values[:180]
    mean = [sum(column) / 180 for column in known.T]
    std = [(sum((value - mu) ** 2 for value in column) / 180) ** 0.5 for column, mu in zip(known.T, mean, strict=True)]
    np.testing.assert_allclose(data.mean, mean)
    np.testing.assert_allclose(data.std, std)
    expected = (table.values[240:] - mean) / std
    np.testing.assert_allclose(data.test.values.numpy(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("constant", [7.0, 0.1, -1e9 / 3])
def test_a_variable_that_is_constant_in_training_becomes_0(tmp_path: Path, constant: float) -> None:
    """Also where the mean of equal numbers is not that number, to the last digit."""
    made = read_table(write_table(tmp_path))
    made.values[:180, 1] = constant
    data = forecast_data(made, FIFTHS, 20, 5)
    for part in (data.train, data.validation, data.test):
        assert torch.isfinite(part.values).all()
        assert (part.values[:, 1] == 0).all()


def test_windows_are_slices(table: VariableTable) -> None:
    data = forecast_data(table, FIFTHS, 20, 5)
    assert len(data.test) == 60 - 20 - 5 + 1
    inputs, targets = data.test.batch(torch.tensor([0, 35, 7]))
    for row, start in enumerate((0, 35, 7)):
        assert torch.equal(inputs[row], data.test.values[start : start + 20])
        assert torch.equal(targets[row], data.test.values[start + 20 : start + 25])


def test_windows_are_never_stored(table: VariableTable) -> None:
    part = forecast_data(table, FIFTHS, 20, 5).train
    assert part._all.untyped_storage().data_ptr() == part.values.untyped_storage().data_ptr()


def test_lookbacks_reach_into_the_part_before_and_no_further(table: VariableTable) -> None:
    alone = forecast_data(table, FIFTHS, 20, 5)
    reaching = forecast_data(table, FIFTHS, 20, 5, reach_back=True)
    assert len(reaching.train) == len(alone.train)
    for part in ("validation", "test"):
        assert len(getattr(reaching, part)) == 60 - 5 + 1
    inputs, targets = reaching.test.batch(torch.tensor([0]))
    assert torch.equal(targets[0], alone.test.values[:5])
    assert torch.equal(inputs[0], alone.validation.values[-20:])


def test_the_season_is_24_hours(tmp_path: Path) -> None:
    assert steps_per_day(read_table(write_table(tmp_path, step="15min"))) == 96
    weekly = read_table(write_table(tmp_path, step="7D"))
    assert steps_per_day(weekly) == 0
    assert forecast_data(weekly, FIFTHS, 20, 5).season == 0
    with pytest.raises(DataError, match="does not divide a day, so there are no months"):
        split_rows(VariableTable("made", ETT, np.zeros((300, 7)), "made.csv", "W-WED"), MONTHS)


def test_the_etts_are_split_in_months_whatever_the_order_of_their_columns() -> None:
    for columns in (ETT, ETT[::-1]):
        parts = split_rows(VariableTable("ETTm1", columns, np.zeros((69_680, 7)), "ETTm1.csv", "15min"), MONTHS)
        assert [len(one) for one in (parts.train, parts.validation, parts.test)] == [34_560, 11_520, 11_520]


def test_too_short_is_said_with_numbers(table: VariableTable) -> None:
    with pytest.raises(DataError, match=r"has 60 rows.*20 to look back and 41 to forecast.*at most 40"):
        forecast_data(table, FIFTHS, 20, 41)
    with pytest.raises(DataError, match="look back less far"):
        forecast_data(table, FIFTHS, 60, 1)
    assert len(forecast_data(table, FIFTHS, 20, 40).test) == 1
    with pytest.raises(DataError, match="12, 4 and 4 months"):
        split_rows(VariableTable("made", ETT, np.zeros((300, 7)), "made.csv", "h"), MONTHS)
    with pytest.raises(OptionError, match="did you mean 'fifths'"):
        split_rows(table, "fifth")
    with pytest.raises(OptionError, match="at least 1"):
        Windows(torch.zeros(10, 1), 0, 3, "ten rows")
