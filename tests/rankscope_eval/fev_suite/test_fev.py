"""Tasks of fev: published rows reproduced, covariates used or named, unusable tasks refused in one line."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fev
import numpy as np
import pandas as pd
import pytest
import yaml
from rich.console import Console

from rankscope.errors import DataError, OptionError, RankscopeError
from rankscope_cli.benchmark_tables import show_fev
from rankscope_eval import Forecasting
from rankscope_eval.fev_suite import LISTS, evaluate_fev, models, read_tasks
from rankscope_eval.fev_suite.report import compare

FIELDS = {"seasonality": 12, "eval_metric": "SQL", "extra_metrics": ["MASE", "WQL"], "quantile_levels": [0.1, 0.5, 0.9]}
WINDOWS = 2
HORIZON = 6


@pytest.fixture
def series(tmp_path: Path) -> pd.DataFrame:
    """Four monthly series with a covariate, one of them short."""
    rng = np.random.default_rng(0)
    parts = []
    for name, length in (("a", 60), ("b", 60), ("c", 60), ("short", 10)):
        months = pd.date_range("2019-01-01", periods=length, freq="MS")
        event = (rng.random(length) < 0.3).astype(float)
        sold = 50 + 10 * np.sin(np.arange(length) * np.pi / 6) + 30 * event + rng.normal(size=length)
        parts.append(
            pd.DataFrame({"id": name, "timestamp": months, "target": sold, "returns": sold / 3, "event": event})
        )
    frame = pd.concat(parts)
    frame.to_parquet(tmp_path / "sales.parquet", index=False)
    return frame


@pytest.fixture
def suite(tmp_path: Path, series: pd.DataFrame) -> Callable[..., Path]:
    """``suite({"horizon": 3}, …)``: a file of tasks on these series."""

    def write(*changes: dict[str, Any]) -> Path:
        common = {"dataset_path": "sales.parquet", "horizon": HORIZON, "num_windows": WINDOWS, **FIELDS}
        tasks = [{"task_name": f"sales {n}", **common, **one} for n, one in enumerate(changes or ({},))]
        tasks = [{name: value for name, value in task.items() if value is not None} for task in tasks]
        (tmp_path / "tasks.yaml").write_text(yaml.safe_dump({"tasks": tasks}))
        return tmp_path / "tasks.yaml"

    return write


def test_a_seasonal_naive_by_hand(suite: Callable[..., Path], series: pd.DataFrame) -> None:
    report = evaluate_fev(["naive"], suite())
    scores = {row["model_name"]: row["MASE"] for row in report.rows}
    by_window = []
    for window in range(WINDOWS):
        scaled = []
        for name in "abc":  # the short one has no value before the windows
            y = series.loc[series["id"] == name, "target"].to_numpy()
            cut = len(y) - (WINDOWS - window) * HORIZON
            past, future = y[:cut], y[cut : cut + HORIZON]
            scaled.append(np.abs(future - past[-12:][:HORIZON]).mean() / np.abs(past[12:] - past[:-12]).mean())
        by_window.append(np.mean(scaled))
    assert scores["seasonal-naive"] == pytest.approx(np.mean(by_window), rel=1e-6)  # statsforecast computes in float32
    assert scores["naive"] != scores["seasonal-naive"]
    assert report.notes == ("sales 0: 1 of 4 series are too short for window 1 and left out, short first.",)


def resampled(folder: Path, rule: str | None) -> pd.DataFrame:
    """ETTh1 and ETTh2 in fev's form: means over whole days, or whole weeks that end on Sunday."""
    parts = []
    for name in ("ETTh1", "ETTh2"):
        raw = pd.read_csv(folder / f"{name}.csv", parse_dates=["date"], index_col="date")
        values = raw if rule is None else raw.resample(rule).mean().iloc[1:-1]
        parts.append(values.reset_index(names="timestamp").assign(id=name))
    return pd.concat(parts)


@pytest.mark.slow
@pytest.mark.parametrize(("task", "rule"), [("ETT_1H", None), ("ETT_1D", "D"), ("ETT_1W", "W-SUN")])
def test_published_rows_of_fev_bench(task: str, rule: str | None, shared_folder: Path, tmp_path: Path) -> None:
    """The naive models to the digits of their published rows; those of resampled data to its rounding."""
    (tmp_path / task).mkdir()
    frame = resampled(shared_folder / "data" / "benchmark" / "ETTh", rule)
    frame.to_parquet(tmp_path / task / "all.parquet", index=False)
    found = evaluate_fev(["naive"], "fev-bench", data=tmp_path, tasks=[task])
    with (shared_folder / "reference" / "fev_reference.csv").open(newline="") as stream:
        published = {row["model"]: row for row in csv.DictReader(stream) if row["task"] == task}
    for row in found.rows:
        expected = published[{"naive": "Naive", "seasonal-naive": "Seasonal Naive"}[row["model_name"]]]
        assert row["num_forecasts"] == int(expected["num_forecasts"])
        for metric in ("SQL", "MASE", "WQL", "WAPE"):
            assert row[metric] == pytest.approx(float(expected[metric]), rel=3e-8 if rule else 1e-8), metric


def test_a_model_that_reads_covariates_gets_them(
    suite: Callable[..., Path], chronos2_folder: Path, bolt_folder: Path
) -> None:
    without, with_event = {"num_windows": 1}, {"num_windows": 1, "known_dynamic_columns": ["event"]}
    names = [str(chronos2_folder), str(bolt_folder)]
    report = evaluate_fev(names, suite(without, with_event))
    scores: dict[str, list[float]] = {}
    for row in report.rows:
        scores.setdefault(row["model_name"], []).append(row["SQL"])
    assert scores[names[0]][0] != scores[names[0]][1]
    assert scores[names[1]][0] == scores[names[1]][1]
    assert report.notes[0] == f"covariates, which 1 of 2 tasks have, are not read by {names[1]}."


def test_several_targets_and_sampled_forecasts(
    suite: Callable[..., Path], chronos2_folder: Path, sampling_folder: Path
) -> None:
    file = suite({"num_windows": 1, "target": ["event", "returns"]})
    report = evaluate_fev([str(chronos2_folder), str(sampling_folder)], file, Forecasting(num_samples=4))
    assert {row["num_forecasts"] for row in report.rows} == {8}
    again = evaluate_fev([str(sampling_folder)], file, Forecasting(num_samples=4))
    assert again.rows[0]["SQL"] == report.rows[1]["SQL"]


def test_a_local_model_forecasts_each_target_alone(suite: Callable[..., Path]) -> None:
    both, one, other = ({"target": target} for target in (["target", "returns"], "target", "returns"))
    rows = evaluate_fev(["naive"], suite(both, one, other), baseline="naive").rows
    scores = [row["MASE"] for row in rows]
    assert scores[0] == pytest.approx(np.mean(scores[1:]))
    assert [row["num_forecasts"] for row in rows] == [14, 7, 7]  # the short series is in the second window alone


def test_fev_reads_the_table(suite: Callable[..., Path], tmp_path: Path) -> None:
    report = evaluate_fev(["naive", "auto-theta"], suite({}, {"horizon": 3}, {"seasonality": 1}), baseline="naive")
    report.to_frame().to_csv(tmp_path / "scores.csv", index=False)
    board = fev.leaderboard([str(tmp_path / "scores.csv")], baseline_model="naive")
    skills = {rank.model: rank.skill for rank in report.leaderboard}
    assert board["skill_score"].to_dict() == pytest.approx(skills)
    pairs = fev.pairwise_comparison([str(tmp_path / "scores.csv")])
    (pair,) = report.pairs
    assert pair.win_rate == pairs.loc[("auto-theta", "naive"), "win_rate"]
    assert (pair.errors.tasks, pair.errors.bases) == (3, 1)  # of one file


def test_stored_rows_are_used_again(
    suite: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    plain = models._local

    def counted(model: str, task: Any) -> Any:
        if len(seen) == 3:
            raise KeyboardInterrupt
        seen.append(f"{model} {task.task_name}")
        return plain(model, task)

    monkeypatch.setattr(models, "_local", counted)
    file, kept = suite({}, {"horizon": 3}), tmp_path / "kept"
    with pytest.raises(KeyboardInterrupt):
        evaluate_fev(["naive"], file, kept=kept)
    seen.append("go on")
    report = evaluate_fev(["naive"], file, kept=kept, resume=True)
    assert seen == ["naive sales 0", "seasonal-naive sales 0", "naive sales 1", "go on", "seasonal-naive sales 1"]
    assert evaluate_fev(["naive"], file).rows[2]["MASE"] == report.rows[2]["MASE"]


def test_rows_of_other_data_or_another_seed_are_not_taken(
    suite: Callable[..., Path], series: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, seen = models._local, []

    def counted(model: str, task: Any) -> Any:
        seen.append(model)
        return plain(model, task)

    monkeypatch.setattr(models, "_local", counted)
    file = suite({})
    for how in (Forecasting(), Forecasting(), Forecasting(seed=1)):
        evaluate_fev(["naive"], file, how, kept=tmp_path / "kept", resume=True)
    assert seen == ["naive", "seasonal-naive"] * 2
    series.assign(target=series["target"] ** 2).to_parquet(tmp_path / "sales.parquet", index=False)
    evaluate_fev(["naive"], file, kept=tmp_path / "kept", resume=True)
    assert seen == ["naive", "seasonal-naive"] * 3


def test_numbers_that_are_none_survive_being_stored(
    suite: Callable[..., Path], series: pd.DataFrame, tmp_path: Path
) -> None:
    """A constant series has no scaled error: its task is named, compared on nothing, and shown after a resume."""
    flat = series.assign(target=1.0)
    flat.to_parquet(tmp_path / "flat.parquet", index=False)
    file = suite({}, {"dataset_path": "flat.parquet"})
    first = evaluate_fev(["auto-theta"], file, kept=tmp_path / "kept")
    again = evaluate_fev(["auto-theta"], file, kept=tmp_path / "kept", resume=True)
    for report in (first, again):
        assert {row["model_name"] for row in report.rows if math.isnan(row["MASE"])} == {"auto-theta", "seasonal-naive"}
        assert report.notes[-1] == "not compared, since an error is not finite or the baseline's is zero: sales 1."
        assert report.pairs[0].errors.left_out == ("sales 1",)
        assert report.pairs[0].errors.tasks == 1
        said = io.StringIO()
        show_fev(report, Console(file=said, width=200))
        assert "over 1 source of data, " in said.getvalue()
        assert "needs 3 sources of data" in said.getvalue()
    report.to_frame().to_parquet(tmp_path / "scores.parquet")


def test_the_baseline_alone(suite: Callable[..., Path]) -> None:
    said = io.StringIO()
    show_fev(evaluate_fev(["seasonal-naive"], suite()), Console(file=said, width=200))
    assert "nan" not in said.getvalue()


@pytest.mark.parametrize("name", LISTS)
def test_shipped_lists(name: str) -> None:
    tasks = read_tasks(name)
    assert len(tasks) == {"fev-bench": 100, "fev-mini": 20, "chronos-zero-shot": 27}[name]
    names = [task.task_name for task in tasks]
    assert len(set(names)) == len(names)
    assert all(task.quantile_levels == [round(0.1 * n, 1) for n in range(1, 10)] for task in tasks)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"horizont": 3}, "task 1 (sales 0): horizont: Unexpected keyword argument"),
        ({"horizon": 0}, "must satisfy >= 1"),
        ({"eval_metric": "SMAP"}, "'SMAP' is not available"),
        ({"dataset_path": "none.parquet"}, "fev task sales 0: "),
        ({"target": "sold"}, "sold"),
        ({"known_dynamic_columns": ["weather"]}, "weather"),
        ({"horizon": 40}, "fev task sales 0: All time series in the dataset are too short"),
        ({"seasonality": 0}, "seasonality has to be at least 1"),
        ({"eval_metric": {"nme": "MASE"}}, "there is no 'name'"),
        ({"eval_metric": {"name": "MASE", "epsilon": "z"}, "extra_metrics": []}, "naive on fev task sales 0"),
        ({"known_dynamic_columns": ["target"]}, "fev task sales 0"),
    ],
)
def test_tasks_that_cannot_be_used(suite: Callable[..., Path], change: dict[str, Any], message: str) -> None:
    with pytest.raises(RankscopeError) as caught:
        evaluate_fev(["naive"], suite(change))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [("- 1", "lists no fev tasks"), ("tasks: [3]", "task 1 is not a mapping"), ("tasks: {", "is not valid YAML")],
)
def test_files_that_hold_no_tasks(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "tasks.yaml").write_text(text)
    with pytest.raises(DataError, match=message):
        read_tasks(tmp_path / "tasks.yaml")


def test_tasks_that_cannot_be_told_apart(suite: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match="another task is named same"):
        read_tasks(suite({"task_name": "same"}, {"task_name": "same", "horizon": 3}))
    with pytest.raises(DataError, match="fev cannot tell it from sales 0"):
        read_tasks(suite({}, {"num_windows": 1, "initial_cutoff": -12}))
    (nameless,) = read_tasks(suite({"task_name": None}))
    assert nameless.task_name == "sales"


def test_unknown_lists_and_names(suite: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match="fev-mini"):
        read_tasks("fev-min")
    with pytest.raises(DataError, match="sales 0"):
        read_tasks(suite(), names=["sales"])
    with pytest.raises(DataError, match="tasks is empty"):
        read_tasks(suite(), names=[])


def made(errors: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """Summaries with these errors by model and task."""
    task = {**read_tasks("chronos-zero-shot")[0].to_dict(), "trained_on_this_dataset": False, "fev_version": "0.10.0"}
    times = {"training_time_s": 0.0, "inference_time_s": 1.0, "num_forecasts": 1}
    return [
        {**task, **times, "model_name": model, "dataset_config": name, "task_name": name, "test_error": error}
        for model, each in errors.items()
        for name, error in each.items()
    ]


def test_tasks_of_one_data_set_are_no_independent_evidence() -> None:
    """Ten frequencies of each of three data sets leave the interval that three tasks would have."""
    few = {"A_1H": 1.1, "B_1H": 1.0, "C_1H": 0.9}
    many = {f"{name[0]}_{n}H": error for name, error in few.items() for n in range(1, 11)}
    ends = []
    for errors in (few, many):
        rows = made({"mine": errors, "base": dict.fromkeys(errors, 1.0)})
        (pair,) = compare(rows, "base", 0.02, resamples=10)
        assert pair.errors.bases == 3
        assert pair.errors.tasks == len(errors)
        ends.append(pair.errors.interval)
    assert ends[0] is not None
    assert ends[0] == pytest.approx(ends[1])


def test_verdicts() -> None:
    names = [f"set{letter}" for letter in "abcdefgh"]
    base = dict.fromkeys(names, 1.0)
    for factor, word in ((1.001, "held"), (1.2, "worse"), (0.8, "better")):
        errors = {name: factor * (1 + 0.002 * n) for n, name in enumerate(names)}
        (pair,) = compare(made({"mine": errors, "base": base}), "base", 0.02, resamples=10)
        assert pair.errors.verdict.word == word
        assert pair.errors.verdict.worst == names[-1]
    (pair,) = compare(made({"mine": {"a": 1.0, "b": 1.0}, "base": {"a": 1.0, "b": 1.0}}), "base", 0.02, resamples=10)
    assert pair.errors.interval is None
    assert pair.errors.verdict.word == "not shown"


def test_win_rate_and_ratio_are_of_the_same_tasks() -> None:
    """A task on which one of the models has no error is compared for none."""
    base = {f"set{letter}": 1.0 for letter in "abcde"}
    mine = dict.fromkeys(base, 0.5) | {"sete": 3.0}
    rows = made({"mine": mine, "other": {**base, "sete": float("nan")}, "base": base})
    pair = next(one for one in compare(rows, "base", 0.02, resamples=10) if one.model == "mine")
    assert (pair.win_rate, pair.errors.tasks) == (1.0, 4)
    assert pair.errors.ratio == pytest.approx(0.5)


@pytest.mark.slow
def test_the_interval_over_data_sets_covers() -> None:
    """Data sets whose tasks share most of their effect: nominal 95 %, seen over 200 simulated studies."""
    from rankscope_eval.bases import draw
    from rankscope_eval.relative import interval

    rng, inside, studies = np.random.default_rng(0), 0, 200
    for study in range(studies):
        draws = []
        for number in range(10):
            effect = rng.normal(scale=0.1)
            tasks = np.exp(effect + rng.normal(scale=0.05, size=rng.integers(1, 5)))
            draws.append(draw(f"{study}-{number}", list(tasks)))
        ends = interval(draws)
        assert ends is not None
        inside += ends[0] < 1 < ends[1]
    assert 0.91 <= inside / studies <= 0.99


def test_a_revision_is_the_models_and_not_the_baselines(
    suite: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, str | None] = {}

    def noted(model: str, how: Forecasting) -> models.FevForecaster:
        asked[model] = how.revision
        return models.FevForecaster(model, lambda task: models._local("naive", task))

    monkeypatch.setattr("rankscope_eval.fev_suite.run.open_fev_forecaster", noted)
    evaluate_fev(["mine"], suite(), Forecasting(revision="v1"), baseline="theirs")
    assert asked == {"mine": "v1", "theirs": None}
    with pytest.raises(OptionError, match="mine is also evaluated, at revision v1"):
        evaluate_fev(["mine"], suite(), Forecasting(revision="v1"), baseline="mine")
