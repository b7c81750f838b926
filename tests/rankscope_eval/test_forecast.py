import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from chronos import BaseChronosPipeline
from gluonts.model.forecast import QuantileForecast

from rankscope.checkpoints import open_checkpoint
from rankscope.errors import DataError, OptionError, RankscopeError
from rankscope.series import Series
from rankscope_eval import forecast_file, forecast_series, forecast_stream, read_series, series_suite
from rankscope_eval.forecast import forecast_values
from rankscope_eval.forecasters import Forecasting, pipeline_forecaster


@pytest.fixture
def sales(tmp_path: Path) -> Path:
    parts = [
        pd.DataFrame({"shop": name, "date": pd.date_range("2020-01-31", periods=24, freq="ME"), "sold": base})
        for name, base in (("a", np.arange(24.0)), ("b", np.tile([1.0, 5.0, 9.0], 8)))
    ]
    path = tmp_path / "sales.csv"
    pd.concat(parts).rename(columns={"shop": "item_id"}).to_csv(path, index=False)
    return path


def test_the_table_continues_every_series(sales: Path) -> None:
    table = forecast_file("naive", sales, 3)
    assert list(table.columns) == ["item_id", "timestamp", "mean", *(str(q / 10) for q in range(1, 10))]
    assert table["item_id"].tolist() == ["a"] * 3 + ["b"] * 3
    assert table["timestamp"].tolist()[:3] == list(pd.date_range("2022-01-31", periods=3, freq="ME"))
    assert table["0.5"].tolist() == [23.0] * 3 + [9.0] * 3


def test_the_season_follows_the_frequency_or_the_caller(sales: Path) -> None:
    assert forecast_file("seasonal-naive", sales, 3, season_length=3)["mean"].tolist()[3:] == [1.0, 5.0, 9.0]
    assert forecast_file("seasonal-naive", sales, 3)["mean"].tolist()[:3] == [12.0, 13.0, 14.0]


def test_every_series_has_the_season_of_its_own_frequency(tmp_path: Path) -> None:
    rows = [{"item_id": freq, "start": "2020-01-01", "freq": freq, "target": list(range(30))} for freq in "DM"]
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    table = forecast_file("seasonal-naive", path, 3)
    assert table["mean"].tolist() == [29.0] * 3 + [18.0, 19.0, 20.0]
    forecast_stream("seasonal-naive", path, 3, tmp_path / "out")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out"), table)


@pytest.mark.parametrize("fixture", ["sampling_folder", "bolt_folder", "chronos2_folder"])
def test_checkpoints_give_ordered_quantiles_and_repeat(
    sales: Path, fixture: str, request: pytest.FixtureRequest
) -> None:
    pipeline = BaseChronosPipeline.from_pretrained(request.getfixturevalue(fixture), device_map="cpu")
    model = pipeline_forecaster("m", pipeline, Forecasting(num_samples=5))
    table = forecast_file(model, sales, 4, quantiles=[0.9, 0.2, 0.5])
    assert list(table.columns[3:]) == ["0.2", "0.5", "0.9"]
    assert len(table) == 8
    assert np.isfinite(table.iloc[:, 2:].to_numpy()).all()
    pd.testing.assert_frame_equal(table, forecast_file(model, sales, 4, quantiles=[0.2, 0.5, 0.9]))


@pytest.mark.parametrize("quantiles", [[], [0.5, 0.5], [0.0], [1.2], [float("nan")]])
def test_quantiles_outside_the_unit_interval_are_refused(sales: Path, quantiles: list) -> None:
    with pytest.raises(OptionError, match="between 0 and 1"):
        forecast_file("naive", sales, 2, quantiles=quantiles)


@pytest.mark.parametrize("horizon", [0, -1])
def test_a_horizon_below_one_is_refused_before_reading(horizon: int) -> None:
    with pytest.raises(OptionError, match="horizon"):
        forecast_file("naive", "gone.csv", horizon)


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "empty"), ("a,b\nx,y\n", "numeric")],
)
def test_bad_input_gets_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        forecast_file("naive", tmp_path / "x.csv", 2)
    assert "\n" not in str(caught.value)


def test_a_season_below_one_is_refused(sales: Path) -> None:
    with pytest.raises(RankscopeError, match="season_length"):
        forecast_file("seasonal-naive", sales, 2, season_length=0)


def test_a_series_without_a_number_gets_a_forecast_of_nan(tmp_path: Path) -> None:
    days = pd.date_range("2024-01-01", periods=20, freq="D")
    full = pd.DataFrame({"item_id": "full", "timestamp": days, "target": np.arange(20.0)})
    table = pd.concat([full.assign(item_id="none", target=np.nan), full])
    table.to_csv(tmp_path / "x.csv", index=False)
    frame = forecast_file("seasonal-naive", tmp_path / "x.csv", 3)
    assert frame["item_id"].tolist() == ["none"] * 3 + ["full"] * 3
    assert frame["mean"].isna().tolist() == [True] * 3 + [False] * 3
    full.to_csv(tmp_path / "full.csv", index=False)
    alone = forecast_file("seasonal-naive", tmp_path / "full.csv", 3)
    pd.testing.assert_frame_equal(frame[3:].reset_index(drop=True), alone)


def test_forecasts_leave_the_random_state_of_the_caller(sales: Path, sampling_folder: Path) -> None:
    how = Forecasting(num_samples=2)
    first = forecast_file(sampling_folder, sales, 3, how)
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    assert forecast_file(sampling_folder, sales, 3, how).equals(first)
    assert torch.equal(torch.rand(3), expected)


def test_a_model_comes_by_name_by_folder_or_open(sales: Path, bolt_folder: Path, tmp_path: Path) -> None:
    by_name = forecast_file(str(bolt_folder), sales, 3)
    for number, model in enumerate((bolt_folder, open_checkpoint(bolt_folder))):
        assert forecast_file(model, sales, 3).equals(by_name)
        report = forecast_stream(model, sales, 3, tmp_path / f"{number}")
        assert report.model == str(bolt_folder)
        parts = (tmp_path / f"{number}").glob("part-*.parquet")
        assert pd.concat(map(pd.read_parquet, sorted(parts)))["mean"].tolist() == pytest.approx(
            by_name["mean"].tolist()
        )


def test_series_may_come_from_an_iterator_and_counts_from_numpy(sales: Path) -> None:
    series = read_series(sales)
    whole = forecast_series("seasonal-naive", series, 3, season_length=3)
    again = forecast_series(
        "seasonal-naive", iter(series), np.int64(3), season_length=np.int64(3), context=np.int64(20)
    )
    assert again.equals(whole)


@pytest.mark.parametrize("wrong", [{"quantiles": 0.5}, {"quantiles": ("a",)}, {"season_length": 1.5}, {"context": 0}])
@pytest.mark.usefixtures("untyped")
def test_options_of_another_type_are_named(sales: Path, wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError, match=f"^{next(iter(wrong))} .* not usable"):
        forecast_file("naive", sales, 3, **wrong)  # type: ignore[arg-type]


class Crossing:
    """A model whose quantiles cross, and whose mean is its median."""

    name, context = "crossing", None

    def forecast(self, entries: list, horizon: int, seasons: list, levels: tuple) -> Any:
        for entry in entries:
            rows = np.tile([[3.0], [1.0], [2.0], [1.0]], horizon)
            yield QuantileForecast(rows, entry["start"], [*map(str, levels), "mean"])


def test_quantiles_that_cross_are_sorted(sales: Path) -> None:
    values = forecast_values(Crossing(), read_series(sales), 2, (0.1, 0.5, 0.9), None)  # type: ignore[arg-type]
    assert values[0, :, 0].tolist() == [2, 1, 2, 3]


def test_a_start_without_a_frequency_is_refused() -> None:
    with pytest.raises(DataError, match="start has to be a pandas Period"):
        Series("a", "2024-01-01", np.ones(3))  # type: ignore[arg-type]


def test_levels_beyond_those_learned_are_warned_of(
    sales: Path, bolt_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.warns(UserWarning, match=r"has learned the quantiles 0\.1 to 0\.9: a level beyond them"):
        frame = forecast_file(bolt_folder, sales, 1, Forecasting(batch_size=1), quantiles=[0.05, 0.1, 0.5])
    assert frame["0.05"].equals(frame["0.1"])
    assert not caplog.records


def test_series_are_series(sales: Path) -> None:
    with pytest.raises(DataError, match="series: a str is not a Series"):
        forecast_series("naive", pd.DataFrame({"a": [1.0]}), 2)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="a DataFrame is not a file: write it first"):
        series_suite(pd.DataFrame({"a": [1.0]}), 2)  # type: ignore[arg-type]
