"""GIFT-Eval: published rows of the naive models, terms and windows by hand, and the files of a submission."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest

from rankscope.errors import DataError, OptionError, RankscopeError
from rankscope_eval import Forecasting
from rankscope_eval.gift_eval import configurations, evaluate_gift, write_submission
from rankscope_eval.gift_eval.report import CRPS, METRICS
from rankscope_eval.gift_eval.sets import load


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """``folder("ett1/H", 800, variates=7)``: a made-up data set in the benchmark's layout, beside what is there."""

    def write(name: str, length: int, freq: str = "H", variates: int = 1, items: int = 2, **extra: Any) -> Path:
        rng = np.random.default_rng(0)
        season = 10 + np.sin(np.arange(length) * np.pi / 12)
        values = season + 0.1 * rng.normal(size=(items, variates, length))
        targets: list[Any] = [one[0].tolist() if variates == 1 else one.tolist() for one in values]
        rows = {
            "item_id": [f"s{n}" for n in range(items)],
            "start": [pd.Timestamp("2020-01-01")] * items,
            "freq": [freq] * items,
            "target": targets,
            **extra,
        }
        datasets.Dataset.from_dict(rows).save_to_disk(str(tmp_path / name))
        return tmp_path

    return write


@pytest.mark.slow
def test_published_rows_of_m4_hourly(shared_folder: Path) -> None:
    """MASE to the last digits; sums of single-precision numbers to what their order leaves."""
    found = evaluate_gift(["naive"], shared_folder / "data" / "benchmark", tasks=["m4_hourly/H/short"])
    with (shared_folder / "reference" / "gift_eval_reference.csv").open(newline="") as stream:
        published = {row["model"]: row for row in csv.DictReader(stream)}
    for row in found.rows:
        expected = published[{"naive": "Naive", "seasonal-naive": "Seasonal_Naive"}[row.model]]
        assert row.scores["MASE[0.5]"] == pytest.approx(float(expected["MASE"]), rel=1e-12)
        for metric, name in ((CRPS, "CRPS"), ("ND[0.5]", "ND"), ("MSIS", "MSIS")):
            assert row.scores[metric] == pytest.approx(float(expected[name]), rel=3e-7)


def test_terms_and_windows(folder: Callable[..., Path]) -> None:
    data = folder("ett1/H", 5000)
    found = evaluate_gift(["naive"], data)
    sizes = {row.dataset: (row.horizon, row.windows, row.series) for row in found.rows}
    assert sizes == {"ett1/H/short": (48, 11, 2), "ett1/H/medium": (480, 2, 2), "ett1/H/long": (720, 1, 2)}
    assert len(found.missing) == 97 - 3
    assert (found.pairs[0].MASE.tasks, found.pairs[0].MASE.bases) == (3, 1)


@pytest.mark.parametrize(
    ("name", "freq", "horizon"), [("m4_weekly", "W", 13), ("us_births/M", "M", 12), ("bizitobs_l2c/5T", "5T", 48)]
)
def test_horizons_of_other_frequencies(folder: Callable[..., Path], name: str, freq: str, horizon: int) -> None:
    loaded = load(folder(name, 100, freq) / name)
    one = next(one for one in configurations() if one.source.folder == name)
    assert loaded.horizon(one) == horizon
    assert loaded.windows(one) == 1


def test_scores_by_hand(folder: Callable[..., Path]) -> None:
    found = evaluate_gift(["naive"], folder("ett1/H", 300), tasks=["ett1/H/short"])
    scaled, errors, sizes = [], 0.0, 0.0
    for entry in load(folder("ett1/H", 300) / "ett1" / "H").entries:
        past, future = entry["target"][:-48].astype(float), entry["target"][-48:].astype(float)
        error = np.abs(future - np.tile(past[-24:], 2))
        scaled.append(error / np.abs(past[24:] - past[:-24]).mean())
        errors, sizes = errors + error.sum(), sizes + np.abs(future).sum()
    row = next(row for row in found.rows if row.model == "seasonal-naive")
    assert row.scores["MASE[0.5]"] == pytest.approx(np.mean(scaled), rel=1e-5)
    assert row.scores["ND[0.5]"] == pytest.approx(errors / sizes, rel=1e-5)
    assert 0 < row.scores[CRPS] < row.scores["ND[0.5]"]
    config = {"model": "nobody"}
    with pytest.raises(OptionError, match="nobody"):
        write_submission(found, "nobody", Path("nowhere"), config)


def test_series_shorter_than_a_season_go_on_as_they_end(folder: Callable[..., Path]) -> None:
    data = folder("ett1/H", 60)  # a context of 12 hours
    found = evaluate_gift(["naive"], data, tasks=["ett1/H/short"])
    naive, seasonal = (next(row for row in found.rows if row.model == one) for one in ("naive", "seasonal-naive"))
    assert 0 < seasonal.scores["ND[0.5]"] < 2 * naive.scores["ND[0.5]"]


def test_variates_are_series_of_their_own(folder: Callable[..., Path], bolt_folder: Path) -> None:
    data = folder("bizitobs_l2c/H", 200, variates=7)
    found = evaluate_gift([str(bolt_folder)], data, tasks=["bizitobs_l2c/H/short"])
    assert {(row.series, row.num_variates) for row in found.rows} == {(14, 7)}
    ids = [entry["item_id"] for entry in load(data / "bizitobs_l2c" / "H").entries]
    assert ids[:8] == [f"s0_dim{n}" for n in range(7)] + ["s1_dim0"]


def test_the_files_of_a_submission(folder: Callable[..., Path], tmp_path: Path) -> None:
    report = evaluate_gift(["naive"], folder("ett1/H", 300), tasks=["ett1/H/short"])
    write_submission(report, "naive", tmp_path / "made", {"model_type": "statistical"})
    with (tmp_path / "made" / "all_results.csv").open(newline="") as stream:
        (row,) = csv.DictReader(stream)
    assert list(row) == ["dataset", "model", *(f"eval_metrics/{name}" for name in METRICS), "domain", "num_variates"]
    assert (row["dataset"], row["domain"], row["num_variates"]) == ("ett1/H/short", "Energy", "7")
    assert float(row["eval_metrics/MASE[0.5]"]) == report.rows[0].scores["MASE[0.5]"]
    config = json.loads((tmp_path / "made" / "config.json").read_text())
    assert config == {"model": "naive", "model_type": "statistical"}


def test_stored_rows_are_used_again(
    folder: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rankscope_eval.gift_eval import run

    seen: list[str] = []
    plain = run.score

    def counted(forecaster: Any, *rest: Any) -> Any:
        if len(seen) == 1:
            seen.append("stopped")
            raise KeyboardInterrupt
        seen.append(forecaster.name)
        return plain(forecaster, *rest)

    monkeypatch.setattr(run, "score", counted)
    data = folder("ett1/H", 300)
    with pytest.raises(KeyboardInterrupt):
        evaluate_gift(["naive"], data, tasks=["ett1/H/short"], kept=tmp_path / "kept")
    evaluate_gift(["naive"], data, tasks=["ett1/H/short"], kept=tmp_path / "kept", resume=True)
    assert seen == ["naive", "stopped", "seasonal-naive"]


def test_rows_of_other_data_or_another_seed_are_not_taken(
    folder: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rankscope_eval.gift_eval import run

    plain, seen = run.score, []

    def counted(forecaster: Any, *rest: Any) -> Any:
        seen.append(forecaster.name)
        return plain(forecaster, *rest)

    monkeypatch.setattr(run, "score", counted)
    made = 0
    for length, how in ((300, Forecasting()), (300, Forecasting()), (400, Forecasting()), (400, Forecasting(seed=1))):
        data, made = folder("ett1/H", length) if length != made else data, length
        evaluate_gift(["naive"], data, how, tasks=["ett1/H/short"], kept=tmp_path / "kept", resume=True)
    assert seen == ["naive", "seasonal-naive"] * 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": ["ett1/H/shortest"]}, "ett1/H/short"),
        ({"tasks": ["ett2/H/short"]}, "holds none of the data sets of 1 configurations, ett2/H/short first"),
        ({"data": "none"}, "data folder none does not exist"),
        ({"tasks": []}, "tasks is empty"),
        ({"tasks": ["ett1/H/long"]}, "series 's0' has 300 values, which 1 window(s) of 720 steps"),
    ],
)
def test_what_cannot_be_evaluated(folder: Callable[..., Path], change: dict[str, Any], message: str) -> None:
    with pytest.raises(RankscopeError) as caught:
        evaluate_gift(["naive"], **{"data": folder("ett1/H", 300), "tasks": ["ett1/H/short"], **change})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_folders_that_are_no_data_sets(folder: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "ett1" / "H").mkdir(parents=True)
    with pytest.raises(DataError, match="is not a data set of GIFT-Eval"):
        evaluate_gift(["naive"], tmp_path, tasks=["ett1/H/short"])
    folder("us_births/D", 0)
    with pytest.raises(DataError, match="series 's0' has no values"):
        evaluate_gift(["naive"], tmp_path, tasks=["us_births/D/short"])
    datasets.Dataset.from_dict({"a": [1]}).save_to_disk(str(tmp_path / "ett2" / "H"))
    with pytest.raises(DataError, match="is not a data set of GIFT-Eval"):
        evaluate_gift(["naive"], tmp_path, tasks=["ett2/H/short"])
