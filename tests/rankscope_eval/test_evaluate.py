import csv
import io
import json
import math
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from chronos import BaseChronosPipeline
from gluonts.model.forecast import SampleForecast

import rankscope_eval
from rankscope.checkpoints import open_checkpoint
from rankscope.errors import DataError, OptionError, RankscopeError
from rankscope.io import codec
from rankscope_eval import evaluate
from rankscope_eval.forecasters import Forecaster, Forecasting, open_forecaster, pipeline_forecaster
from rankscope_eval.report import EvalReport
from rankscope_eval.suites import PublishedScore, Suite, Task


def write_suite(folder: Path, frame: pd.DataFrame, **fields: Any) -> Suite:
    frame.to_parquet(folder / "t.parquet")
    return Suite("s", (Task(name="t", prediction_length=4, offset=-4, benchmark="b", **fields),), folder)


def frame(*targets: Any, freq: str = "D") -> pd.DataFrame:
    return pd.DataFrame(
        {"item_id": [f"s{i}" for i in range(len(targets))], "start": "2020-01-01", "freq": freq, "target": targets}
    )


def test_seasonal_naive_reproduces_the_published_scores(shared_folder: Path) -> None:
    folder = shared_folder / "data" / "benchmark"
    report = evaluate(["seasonal-naive"], suite=folder / "backtest.yaml", data=folder)
    assert len(report.rows) == 6
    for row in report.rows:
        assert row.published_MASE is not None
        assert pytest.approx(row.published_MASE, rel=2e-7) == row.MASE, row.dataset
        assert pytest.approx(row.published_WQL, rel=2e-7) == row.WQL, row.dataset
    assert {row.dataset for row in report.rows if abs(row.MASE / row.published_MASE - 1) > 1e-14} == {"nn5"}


def test_published_suites_find_local_files_and_say_what_they_could_not_load(
    shared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    report = evaluate(
        ["seasonal-naive"],
        suite="chronos-zero-shot",
        data=shared_folder / "data" / "benchmark",
        tasks=["ETTh", "monash_m1_quarterly", "m5", "ETTm"],
    )
    assert [row.dataset for row in report.rows] == ["ETTh", "monash_m1_quarterly"]
    for row in report.rows:
        assert pytest.approx(row.published_MASE, rel=1e-12) == row.MASE
    assert {one.dataset for one in report.skipped} == {"ETTm", "m5"}
    reasons = " ".join(one.reason for one in report.skipped)
    assert "rankscope[hub]" in reasons
    assert "zhouhaoyi/ETDataset" in reasons


def test_a_suite_of_which_nothing_loads_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"no task .* could be loaded: .*pip install 'rankscope\[hub\]'"):
        evaluate(["naive"], suite="chronos-zero-shot", tasks=["m5"])


def test_the_embedded_suite_needs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.socket.connect", lambda *a: pytest.fail("the network was used"))
    report = evaluate(["naive"])
    assert report.suite == "embedded"
    assert len(report.rows) == 2 * 13
    assert all(math.isfinite(row.MASE) and math.isfinite(row.WQL) for row in report.rows)
    again = evaluate(["naive"])
    assert [(r.MASE, r.WQL) for r in report.rows] == [(r.MASE, r.WQL) for r in again.rows]


@pytest.fixture(scope="module")
def small_report() -> EvalReport:
    return evaluate(["naive", "seasonal-naive"], tasks=["air_passengers", "generated_daily"])


def test_json_has_the_documented_shape(small_report: EvalReport) -> None:
    report = json.loads(json.dumps(codec.plain(small_report), allow_nan=False))
    assert report["schema"] == "rankscope/eval@1"
    assert {"benchmark", "dataset", "model", "MASE", "WQL", "seconds"} <= set(report["rows"][0])
    wanted = {"model", "baseline", "benchmark", "datasets", "relative_MASE", "relative_WQL"}
    assert wanted <= set(report["summary"][0])
    assert (report["seed"], report["num_samples"], report["baseline"]) == (0, 20, "seasonal-naive")


def test_relative_scores_are_geometric_means_of_ratios(small_report: EvalReport) -> None:
    frame = small_report.to_frame().pivot(index="dataset", columns="model", values="WQL")
    ratios = frame["naive"] / frame["seasonal-naive"]
    by_name = {(s.model, s.benchmark): s for s in small_report.summary}
    assert by_name["naive", "all"].relative_WQL == pytest.approx(float(np.sqrt(ratios.prod())), rel=1e-12)
    assert by_name["naive", "embedded-measured"].relative_WQL == pytest.approx(ratios["air_passengers"], rel=1e-12)
    assert by_name["seasonal-naive", "all"].relative_MASE == 1.0
    table = small_report.summary_frame().set_index(["model", "benchmark"])
    for key, one in by_name.items():
        assert table.loc[key, "relative_WQL"] == one.relative_WQL
        ends = (None, None) if one.WQL_interval is None else one.WQL_interval
        assert [
            None if pd.isna(table.loc[key, f"WQL_{end}"]) else table.loc[key, f"WQL_{end}"] for end in ("low", "high")
        ] == [*ends]
        assert table.loc[key, "WQL_verdict"] == (one.WQL_verdict and one.WQL_verdict.word)


def test_csv_has_the_published_layout(small_report: EvalReport) -> None:
    rows = list(csv.DictReader(io.StringIO(small_report.to_csv())))
    scores = ["dataset", "model", "MASE", "WQL", "SQL", "WAPE", "MSIS", "coverage"]
    made = ["benchmark", "series", "windows", "prediction_length", "season_length", "unscaled", "fallbacks"]
    settings = ["baseline", "seed", "num_samples", "batch_size", "max_series", "dtype", "runtime", "revision", "margin"]
    assert list(rows[0]) == [*scores, *made, *settings]
    assert [row["dataset"] for row in rows] == sorted(row["dataset"] for row in rows)
    assert {float(row["MASE"]) for row in rows} == {row.MASE for row in small_report.rows}


def test_published_scores_are_those_of_the_benchmark(tmp_path: Path) -> None:
    """Two benchmarks may hold a data set of one name; scores without a benchmark are of any."""
    suite = write_suite(tmp_path, frame(np.arange(20.0)))
    tasks = (*suite.tasks, replace(suite.tasks[0], benchmark="c"))
    scores = [PublishedScore("t", "naive", 1.0, 1.0, "b"), PublishedScore("t", "naive", 2.0, 2.0, "c")]
    found = []
    for published in (scores, [replace(scores[0], benchmark="")]):
        rows = evaluate(["naive"], suite=replace(suite, tasks=tasks, published=tuple(published))).rows
        found.append([row.published_MASE for row in rows if row.model == "naive"])
    assert found == [[1.0, 2.0], [1.0, 1.0]]


def test_the_baseline_is_evaluated_once_and_only_summarised_when_asked_for() -> None:
    report = evaluate(["naive"], baseline="naive", tasks=["nile"])
    assert [(row.model, row.dataset) for row in report.rows] == [("naive", "nile")]
    assert [(s.model, s.baseline, s.relative_MASE) for s in report.summary] == [("naive", "naive", 1.0)]


def test_a_row_does_not_depend_on_the_other_tasks(sampling_folder: Path) -> None:
    pipeline = BaseChronosPipeline.from_pretrained(sampling_folder, device_map="cpu")
    model = pipeline_forecaster("m", pipeline, Forecasting(num_samples=3))
    both = evaluate([model], tasks=["nile", "air_passengers"])
    alone = evaluate([model], tasks=["air_passengers"])
    assert [r.WQL for r in both.rows if r.dataset == "air_passengers"] == [r.WQL for r in alone.rows]


def test_a_constant_series_leaves_mase_and_is_counted(tmp_path: Path) -> None:
    moving = np.arange(20.0)
    with_flat = evaluate(["naive"], suite=write_suite(tmp_path, frame(np.full(20, 2.0), moving)))
    without = evaluate(["naive"], suite=write_suite(tmp_path, frame(moving)))
    assert with_flat.rows[0].unscaled == 1
    assert with_flat.rows[0].MASE == without.rows[0].MASE
    only_flat = evaluate(["naive"], suite=write_suite(tmp_path, frame(np.full(20, 2.0))))
    assert math.isnan(only_flat.rows[0].MASE)
    assert codec.plain(only_flat)["rows"][0]["MASE"] is None
    assert only_flat.summary[0].datasets == 0
    assert only_flat.summary[0].left_out == ("MASE: b/t", "WQL: b/t")


def test_series_that_are_forecast_but_for_rounding_are_no_evidence(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    varied = [10 + rng.normal(size=40) for _ in range(2)]

    def rounding(entries: Any, horizon: int, season: int, levels: Any) -> Any:
        for entry in entries:
            flat = np.full((1, horizon), entry["target"][-1] + 1e-7)
            yield SampleForecast(flat.astype(np.float32), entry["start"] + len(entry["target"]))

    model = Forecaster("m", rounding, files=(), samples=False)
    for constants in (0, 10):
        series = frame(*varied, *(np.full(40, 7.0) for _ in range(constants)))
        (found,) = evaluate([model], suite=write_suite(tmp_path, series)).summary
        assert found.WQL_interval is None, constants  # of two series there is none


def test_windows_in_whose_context_there_is_no_value_are_named(tmp_path: Path) -> None:
    late = np.arange(40.0)
    late[10:36] = np.nan
    unlimited = replace(open_forecaster("naive"), name="long")
    suite = write_suite(tmp_path, frame(late, np.arange(40.0)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        evaluate([unlimited, replace(unlimited, name="enough", context=27)], suite=suite)
    with pytest.warns(UserWarning, match="1 of 2 windows of t the last 26 values, which short reads, are all missing"):
        evaluate([replace(unlimited, name="short", context=26)], suite=suite)


def test_missing_values_in_the_window_are_left_out(tmp_path: Path) -> None:
    target = np.arange(20.0)
    target[[5, 18]] = np.nan
    report = evaluate(["naive"], suite=write_suite(tmp_path, frame(target)))
    assert pytest.approx((1 + 2 + 4) / 3) == report.rows[0].MASE


def test_ragged_series_are_cut_at_their_own_ends(tmp_path: Path) -> None:
    report = evaluate(["naive"], suite=write_suite(tmp_path, frame(np.arange(9.0), 5.0 * np.arange(30.0))))
    assert pytest.approx(2.5) == report.rows[0].MASE


def test_windows_roll(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, frame(np.arange(30.0)))
    rolled = replace(suite, tasks=(replace(suite.tasks[0], offset=-12, num_rolls=3),))
    report = evaluate(["naive"], suite=rolled)
    assert (report.rows[0].series, report.rows[0].windows) == (1, 3)
    assert pytest.approx(2.5) == report.rows[0].MASE


def test_windows_of_one_series_are_one_thing_to_resample(tmp_path: Path) -> None:
    targets = [np.arange(30.0), 3.0 * np.arange(34.0) ** 1.5, np.sin(np.arange(40.0))]

    def rolled(*some: Any) -> EvalReport:
        suite = write_suite(tmp_path, frame(*some))
        task = replace(suite.tasks[0], offset=-12, num_rolls=3)
        return evaluate(["naive", "seasonal-naive"], suite=replace(suite, tasks=(task,)), baseline="naive")

    together = rolled(*targets)
    alone = [rolled(one) for one in targets]
    assert together.rows[0].windows == 9
    for position in range(2):
        found = together.rows[position].sums
        assert found is not None
        expected = np.concatenate([one.rows[position].sums for one in alone])
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert [one.summary[-1].WQL_interval for one in alone] == [None] * 3


def test_max_series_keeps_the_first_and_is_reported(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, frame(np.arange(9.0), np.arange(9.0) ** 2), num_series=2)
    report = evaluate(["naive"], suite=suite, max_series=1)
    assert (report.rows[0].series, report.max_series) == (1, 1)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([np.arange(4.0)], "'s0' has 4 values, but 1 window of 4 steps needs at least 5"),
        ([np.arange(9.0), []], "series 's1' is empty"),
        ([np.full(9, np.nan)], "holds no number"),
    ],
)
def test_series_that_cannot_be_evaluated_are_named(tmp_path: Path, targets: list, message: str) -> None:
    with pytest.raises(DataError, match=message):
        evaluate(["naive"], suite=write_suite(tmp_path, frame(*map(np.asarray, targets))))


def test_a_missing_file_names_the_file_and_the_folder(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, frame(np.arange(9.0)), file=("gone.parquet",))
    with pytest.raises(DataError, match=rf"gone\.parquet is missing in data folder {tmp_path}"):
        evaluate(["naive"], suite=suite)
    with pytest.raises(DataError, match="nowhere does not exist"):
        evaluate(["naive"], suite=suite, data=tmp_path / "nowhere")
    with pytest.raises(DataError, match="states no file"):
        evaluate(["naive"], suite=Suite("s", (Task("u", 4, -4),), tmp_path))


def test_bad_data_is_found_before_the_first_forecast(tmp_path: Path) -> None:
    good = write_suite(tmp_path, frame(np.arange(9.0)))
    (tmp_path / "u.csv").write_text("a,b\nx,y\n")
    suite = replace(good, tasks=(*good.tasks, Task("u", 4, -4), Task("v", 4, -4, embedded="nil")))

    def run(*args: Any) -> Any:
        pytest.fail("a forecast was made")

    with pytest.raises(DataError, match="did you mean 'nile'"):
        evaluate([Forecaster("m", run)], suite=suite)
    with pytest.raises(DataError, match=r"u\.csv has no numeric column"):
        evaluate([Forecaster("m", run)], suite=suite, tasks=["t", "u"])


def test_a_count_that_disagrees_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds 1 series where the suite says num_series: 3"):
        evaluate(["naive"], suite=write_suite(tmp_path, frame(np.arange(9.0)), num_series=3))


def test_no_models_are_refused() -> None:
    with pytest.raises(OptionError, match="give at least one"):
        evaluate([])


@pytest.mark.parametrize("value", [0, -1, True])
def test_max_series_below_one_is_refused(value: int) -> None:
    with pytest.raises(OptionError, match="max_series"):
        evaluate(["naive"], max_series=value)


def test_a_model_that_forecasts_nan_is_named() -> None:
    def run(entries: Any, horizon: int, season: int, levels: Any) -> Any:
        from gluonts.model.forecast import SampleForecast

        return [SampleForecast(np.full((1, horizon), np.nan), e["start"] + len(e["target"])) for e in entries]

    with pytest.raises(DataError, match="model 'broken' on task 'nile'"):
        evaluate([Forecaster("broken", run)], tasks=["nile"])


def test_progress_counts_to_the_end() -> None:
    seen: list[tuple[int, int]] = []
    evaluate(["naive"], tasks=["nile", "sunspots"], progress=lambda done, total, what: seen.append((done, total)))
    assert seen[0] == (0, 4)
    assert seen[-1] == (4, 4)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_evaluating_writes_nothing(capfd: pytest.CaptureFixture) -> None:
    evaluate(["naive"], tasks=["nile"])
    assert capfd.readouterr() == ("", "")


def test_importing_the_package_is_light() -> None:
    code = (
        "import sys, rankscope_eval; rankscope_eval.list_suites();"
        "print([m for m in ('gluonts', 'chronos', 'statsforecast', 'statsmodels', 'matplotlib', 'typer', "
        "'datasets')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    for name in rankscope_eval.__all__:
        assert callable(getattr(rankscope_eval, name))
    with pytest.raises(AttributeError):
        rankscope_eval.nothing  # noqa: B018


def test_a_checkpoint_is_opened_by_its_folder(bolt_folder: Path) -> None:
    report = evaluate([str(bolt_folder)], how=Forecasting(dtype="float32", runtime="stock"), tasks=["nile"])
    pipeline = BaseChronosPipeline.from_pretrained(bolt_folder, device_map="cpu")
    stock = evaluate([pipeline_forecaster("stock", pipeline)], tasks=["nile"])
    assert report.rows[0].model == str(bolt_folder)
    assert (report.rows[0].MASE, report.rows[0].WQL) == (stock.rows[0].MASE, stock.rows[0].WQL)


def test_a_model_that_does_not_exist_is_found_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(RankscopeError, match="gone"):
        evaluate([str(tmp_path / "gone")])


def counted(name: str, seen: list[str], fail_at: int = 0, files: tuple[Path, ...] | None = ()) -> Forecaster:
    """A seasonal naive that writes down what it forecasts, and is interrupted at one of its tasks."""
    plain = rankscope_eval.forecasters.open_forecaster("seasonal-naive")

    def run(entries: Any, horizon: int, season: int, levels: Any) -> Any:
        if len(seen) + 1 == fail_at:
            raise KeyboardInterrupt
        seen.append(name)
        return plain.run(entries, horizon, season, levels)

    return Forecaster(name, run, files=files)


def test_rows_are_kept_and_an_interrupted_evaluation_goes_on(tmp_path: Path) -> None:
    weights, kept, seen = tmp_path / "weights", tmp_path / "kept", []
    weights.write_text("1")
    tasks = ["air_passengers", "nile", "generated_daily"]

    def go(fail_at: int = 0, **options: Any) -> EvalReport:
        model = counted("mine", seen, fail_at, (weights,))
        return evaluate([model], tasks=tasks, kept=kept, **options)

    with pytest.raises(KeyboardInterrupt):
        go(fail_at=2)
    assert len(list((kept / "rows").iterdir())) == 2  # one task of the model and of the baseline
    whole = go(resume=True)
    assert len(seen) == 3
    anew = go()
    assert [(row.dataset, row.MASE) for row in whole.rows] == [(row.dataset, row.MASE) for row in anew.rows]
    assert whole.summary == anew.summary
    assert whole.summary[-1].WQL_interval is not None
    assert len(seen) == 6
    go(resume=True)
    assert len(seen) == 6
    for changed in ({"how": Forecasting(seed=1)}, {"max_series": 1}):
        go(resume=True, **changed)
    assert len(seen) == 12
    weights.write_text("other weights")
    go(resume=True)
    assert len(seen) == 15


def test_rows_of_other_data_are_not_taken(tmp_path: Path) -> None:
    def scores(suite: Suite, **options: Any) -> list[tuple[float, float]]:
        return [(row.MASE, row.WQL) for row in evaluate(["naive"], suite, **options).rows]

    digits = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]
    for targets in (digits, digits[::-1]):
        suite = write_suite(tmp_path, frame(targets))
        assert scores(suite, kept=tmp_path / "kept", resume=True) == scores(suite)
    season = replace(suite, tasks=(replace(suite.tasks[0], season_length=2),))
    assert scores(season, kept=tmp_path / "kept", resume=True) == scores(season) != scores(suite)


def test_rows_of_a_model_that_does_not_say_what_it_is_are_measured_again(tmp_path: Path) -> None:
    seen: list[str] = []
    for _ in range(2):
        evaluate([counted("mine", seen, files=None)], tasks=["nile"], kept=tmp_path / "kept", resume=True)
    assert len(seen) == 2
    with pytest.raises(OptionError, match="requires kept"):
        evaluate(["naive"], tasks=["nile"], resume=True)


def test_models_come_by_name_by_folder_or_open(bolt_folder: Path) -> None:
    scores = []
    for model in (str(bolt_folder), bolt_folder, open_checkpoint(bolt_folder)):
        report = evaluate([model], tasks=["nile"], baseline=model)
        assert report.baseline == str(bolt_folder)
        scores.append([(row.model, row.WQL) for row in report.rows])
    assert scores[1:] == scores[:-1]
    both = evaluate([bolt_folder], tasks=["nile"], baseline=str(bolt_folder))
    assert [(row.model, row.WQL) for row in both.rows] == scores[0]


@pytest.mark.usefixtures("untyped")
def test_names_that_come_without_their_list_are_told() -> None:
    for one in ("naive", Path("naive"), open_checkpoint("bundled-bolt")):
        with pytest.raises(OptionError, match="models must be a list"):
            evaluate(one, tasks=["nile"])
    with pytest.raises(DataError, match=r"tasks must be a list, such as \['nile'\]"):
        evaluate(["naive"], tasks="nile")
