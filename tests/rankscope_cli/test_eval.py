"""``rankscope eval``: what an interrupted run has measured is not lost."""

from __future__ import annotations

import io
import json
import os
import pydoc
import shutil
from pathlib import Path
from typing import Any

import datasets
import fev
import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from rankscope.errors import OutputError
from rankscope.measure.tradeoff import Verdict
from rankscope_cli.eval_tables import show_eval
from rankscope_cli.finished import Wanted, check_finished
from rankscope_eval import scorer
from rankscope_eval.report import EvalReport, EvalSummary, Slice

TASKS = ("eval", "naive", "--tasks", "nile,air_passengers", "--out", "deep/scores.csv")
KEPT = Path("deep/.scores.csv.rows")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Tasks that were really measured, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    seen: list[str] = []
    plain = scorer.score_task

    def counting(forecaster: Any, windows: Any) -> Any:
        if len(seen) == 3 and not KEPT.with_name("go").exists():
            raise KeyboardInterrupt
        seen.append(f"{windows.task.name} {forecaster.name}")
        return plain(forecaster, windows)

    monkeypatch.setattr(scorer, "score_task", counting)
    return seen


def test_an_interrupted_run_goes_on(cli: Any, refused: Any, measured: list[str]) -> None:
    stopped = cli(*TASKS)
    assert stopped.exit_code == 130
    assert "finished rows are kept in deep/.scores.csv.rows: rerun with --resume to continue" in stopped.stderr
    assert not Path("deep/scores.csv").exists()
    KEPT.with_name("go").touch()
    assert "go on with --resume, or start anew with --force" in refused(*TASKS)
    result = cli(*TASKS, "--resume")
    assert result.exit_code == 0, result.stderr
    assert len(measured) == len(set(measured)) == 4
    assert Path("deep/scores.csv").read_text().count("\n") == 5
    assert not KEPT.exists()
    finished = cli(*TASKS, "--resume")
    assert finished.exit_code == 0
    assert "deep/scores.csv is finished: nothing to resume." in finished.stderr
    again = cli(*TASKS, "--force")
    assert again.exit_code == 0, again.stderr
    assert len(measured) == 8


def test_rows_are_not_kept_when_the_reader_of_the_table_has_gone(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_: Any, **__: Any) -> None:
        raise BrokenPipeError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rankscope_cli.verbs.eval.show_eval", closed)
    assert cli(*TASKS).exit_code == 0
    assert [path.name for path in Path("deep").iterdir()] == ["scores.csv"]


@pytest.mark.usefixtures("measured")
def test_other_writes_into_the_folder_keep_the_rows(cli: Any, forecaster_folder: Path) -> None:
    assert cli(*TASKS).exit_code == 130
    rows = sorted(Path("deep").rglob("rows/*.json"))
    drawn = cli("spectrum", forecaster_folder, "--figures", "deep/")
    assert drawn.exit_code == 0, drawn.stderr
    assert sorted(Path("deep").rglob("rows/*.json")) == rows != []


@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])
def test_finished_results_of_another_run_are_not_taken_for_this_one(
    suffix: str, cli: Any, refused: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    naive = ("eval", "naive", "--tasks", "nile,co2", "--num-samples", "5", "--out", f"scores{suffix}")
    assert cli(*naive).exit_code == 0
    before = Path(naive[-1]).read_bytes()
    again = cli(*naive, "--resume")
    assert (again.exit_code, again.stderr) == (0, f"scores{suffix} is finished: nothing to resume.\n")
    done = f"scores{suffix} is finished, "
    other = "choose another --out, or start anew with --force"
    others = {
        "without model 'bundled'": ("eval", "bundled", *naive[2:]),
        "with model 'seasonal-naive' as well": (*naive, "--baseline", "naive"),
        "without data set 'air_passengers'": (*naive, "--tasks", "air_passengers"),
        "with data set 'co2' as well": (*naive[:3], "nile", *naive[4:]),
        "with seed 0, not 1": (*naive, "--seed", "1"),
        "with max_series none, not 1": (*naive, "--max-series", "1"),
        "with baseline seasonal-naive, not naive": (*naive, "seasonal-naive", "--baseline", "naive"),
        "with margin 0.02, not 0.2": (*naive, "--margin", "0.2"),
    }
    for how, words in others.items():
        assert f"{done}{how}: {other}" in refused(*words, "--resume")
    assert Path(naive[-1]).read_bytes() == before
    Path(naive[-1]).write_text("mine")
    assert f"{done}and holds no results that can be read" in refused(*naive, "--resume")


SALES = ("eval", "naive", "--input", "sales.csv")


@pytest.fixture
def sales(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pd.DataFrame:
    """Two monthly series of five years in ``sales.csv``, in columns of other names than usual."""
    monkeypatch.chdir(tmp_path)
    months = pd.date_range("2019-01-01", periods=60, freq="MS")
    rng = np.random.default_rng(0)
    parts = [pd.DataFrame({"shop": shop, "month": months, "sold": rng.gamma(4.0, 10.0, 60)}) for shop in ("a", "b")]
    frame = pd.concat(parts)
    frame.to_csv("sales.csv", index=False)
    return frame


def test_a_file_of_series_is_the_suite_that_says_the_same(cli: Any, sales: pd.DataFrame) -> None:
    names = {"id_column": "shop", "time_column": "month", "target_column": "sold"}
    task = {"name": "sales", "prediction_length": 6, "offset": -18, "num_rolls": 3, "season_length": 12, **names}
    Path("suite.yaml").write_text(json.dumps([task]))
    flags = [word for name, column in names.items() for word in (f"--{name.replace('_', '-')}", column)]
    own = cli(*SALES, "--horizon", "6", "--windows", "3", "--season-length", "12", *flags, "--json")
    suite = cli("eval", "naive", "--suite", "suite.yaml", "--json")
    assert own.exit_code == suite.exit_code == 0, own.stderr + suite.stderr
    found, expected = (json.loads(one.stdout)["rows"] for one in (own, suite))
    assert [(row["model"], row["MASE"], row["WQL"]) for row in found] == [
        (row["model"], row["MASE"], row["WQL"]) for row in expected
    ]
    assert {row["windows"] for row in found} == {6}


def test_one_window_of_a_file_is_its_last_values(cli: Any, sales: pd.DataFrame) -> None:
    result = cli(*SALES, "-H", "6", "--id-column", "shop", "--json")
    assert result.exit_code == 0, result.stderr
    row = next(row for row in json.loads(result.stdout)["rows"] if row["model"] == "naive")
    scaled = []
    for _, one in sales.groupby("shop"):
        past, future = one["sold"].to_numpy()[:-6], one["sold"].to_numpy()[-6:]
        scaled.append(np.abs(future - past[-1]).mean() / np.abs(past[12:] - past[:-12]).mean())
    assert row["MASE"] == pytest.approx(np.mean(scaled), rel=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*SALES, "-H", "6", "--tasks", "nile"), "--tasks selects a suite, and --input replaces it"),
        (("eval", "naive", "--id-column", "shop"), "--id-column requires --input FILE"),
        ((*SALES, "-H", "30", "--windows", "2", "--id-column", "shop"), "series 'a' has 60 values"),
        (("eval", "naive", "--input", "none.csv", "-H", "6"), "none.csv"),
    ],
)
def test_a_file_of_series_that_cannot_be_used(
    refused: Any, sales: pd.DataFrame, words: tuple[str, ...], message: str
) -> None:
    assert message in refused(*words)


@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])
def test_finished_results_of_other_windows_are_not_taken_for_these(
    suffix: str, cli: Any, refused: Any, sales: pd.DataFrame
) -> None:
    out = f"scores{suffix}"
    own = ("eval", "naive", "--input", "sales.csv", "--id-column", "shop", "--out", out)
    assert cli(*own, "--horizon", "3").exit_code == 0
    before = Path(out).read_bytes()
    assert cli(*own, "--horizon", "3", "--resume").stderr == f"{out} is finished: nothing to resume.\n"
    assert cli(*own, "--horizon", "3", "--season-length", "12", "--resume").exit_code == 0  # what it was by frequency
    others = {
        "prediction_length 3, not 5": ("--horizon", "5", "--season-length", "7"),
        "windows 2, not 4": ("--horizon", "3", "--windows", "2"),
        "season_length 12, not 7": ("--horizon", "3", "--season-length", "7"),
        "series 2, not 1": ("--horizon", "3", "--max-series", "1"),
    }
    for how, words in others.items():
        line = refused(*own, *words, "--resume")
        assert f"{out} is finished, with {how} of data set 'sales': choose another --out" in line
    assert Path(out).read_bytes() == before
    assert cli(*own, "--horizon", "3", "--season-length", "7", "--force").exit_code == 0
    assert "with season_length 7, not 12 of data set" in refused(*own, "--horizon", "3", "--resume")


def test_a_finished_document_is_printed_again(cli: Any, refused: Any, sales: pd.DataFrame) -> None:
    words = (*SALES, "-H", "6", "--id-column", "shop", "--json")
    first = cli(*words, "--out", "scores.json")
    assert cli(*words, "--out", "scores.json", "--resume").stdout == first.stdout == Path("scores.json").read_text()
    assert "relative to seasonal-naive" in cli(*words[:-1], "--out", "scores.json", "--resume").stdout
    assert cli(*words, "--out", "scores.csv").exit_code == 0
    assert "scores.csv is finished, and lacks what --json prints" in refused(*words, "--out", "scores.csv", "--resume")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--dtype", "bfloat16"), "--dtype has no effect: naive has no weights"),
        (("--revision", "main"), "--revision has no effect: naive has no weights"),
        (("--data", "."), "data folder . is not used: suite 'embedded' has its data"),
    ],
)
def test_options_that_do_nothing(words: tuple[str, ...], message: str, refused: Any) -> None:
    assert message in refused("eval", "naive", *words)


def test_data_sets_of_one_name_are_compared_each_with_its_own(tmp_path: Path) -> None:
    file = tmp_path / "scores.csv"
    file.write_text("dataset,model,benchmark,prediction_length\nm4,naive,first,3\nm4,naive,second,6\n")
    steps = {("first", "m4"): Wanted(prediction_length=3), ("second", "m4"): Wanted(prediction_length=6)}
    check_finished("scores.csv", [file], ["naive"], steps, {})
    with pytest.raises(OutputError, match="with prediction_length 6, not 7 of data set 'm4'"):
        check_finished("scores.csv", [file], ["naive"], {("second", "m4"): Wanted(prediction_length=7)}, {})


def test_tasks_of_fev(cli: Any, refused: Any, sales: pd.DataFrame) -> None:
    frame = sales.rename(columns={"shop": "id", "month": "timestamp", "sold": "target"})
    frame.to_parquet("sales.parquet", index=False)
    task = {"task_name": "sales", "dataset_path": "sales.parquet", "horizon": 6, "eval_metric": "MASE"}
    Path("tasks.yaml").write_text(json.dumps({"tasks": [task]}))
    words = ("eval", "naive", "--suite", "fev:tasks.yaml")
    result = cli(*words, "--out", "scores.csv")
    assert result.exit_code == 0, result.stderr
    assert "leaderboard, as fev computes it" in result.stdout
    assert "is finished: nothing" in cli(*words, "--out", "scores.csv", "--resume").stderr
    other = ("eval", "seasonal-naive", *words[2:], "--out", "scores.csv", "--resume")
    assert "is finished, with model 'naive' as well" in refused(*other)
    assert len(fev.leaderboard(["scores.csv"], baseline_model="seasonal-naive")) == 2
    document = json.loads(cli(*words, "--json").stdout)
    assert document["schema"] == "rankscope/fev@1"
    assert [row["model_name"] for row in document["rows"]] == ["naive", "seasonal-naive"]
    assert "--max-series is for suites of rankscope" in refused(*words, "--max-series", "2")
    assert "fev-mini" in refused("eval", "naive", "--suite", "fev:mini")


def test_a_submission_to_gift_eval(cli: Any, refused: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values = (10 + np.sin(np.arange(300) * np.pi / 12)).tolist()
    rows = {"item_id": ["a"], "start": [pd.Timestamp("2020-01-01")], "freq": ["H"], "target": [values]}
    datasets.Dataset.from_dict(rows).save_to_disk("data/ett1/H")
    words = ("eval", "naive", "--suite", "gift-eval", "--data", "data", "--tasks", "ett1/H/short")
    result = cli(*words, "--out", "made")
    assert result.exit_code == 0, result.stderr
    assert sorted(str(path) for path in Path("made").rglob("*.*")) == [
        f"made/{model}/{name}" for model in ("naive", "seasonal-naive") for name in ("all_results.csv", "config.json")
    ]
    assert json.loads(Path("made/naive/config.json").read_text()) == {"model": "naive"}
    assert "made exists and is not empty: use --force" in refused(*words, "--out", "made")
    assert cli(*words, "--out", "made", "--force", "--dtype", "float32").exit_code == 0
    assert json.loads(Path("made/naive/config.json").read_text())["model_dtype"] == "float32"
    assert "made is finished" in cli(*words, "--out", "made", "--resume").stderr
    Path("made/naive/all_results.csv").write_text("dataset,model\nett1/H/short,else/naive\n")
    assert "made is finished, without model 'naive'" in refused(*words, "--out", "made", "--resume")
    Path("plain").touch()
    assert "plain is a file" in refused(*words, "--out", "plain")
    assert "two models would be written to" in refused(*words, "--baseline", "else/naive", "--out", "other")
    document = json.loads(cli(*words, "--json").stdout)
    assert document["schema"] == "rankscope/gift-eval@1"
    assert "not in the data folder" not in result.stdout
    assert "--suite gift-eval requires --data DIR" in refused("eval", "naive", "--suite", "gift-eval")


@pytest.mark.parametrize("again", ["--resume", "--force"])
@pytest.mark.parametrize("road", ["fev", "gift-eval"])
def test_an_interrupted_run_of_tasks_goes_on_or_begins_anew(
    road: str,
    again: str,
    cli: Any,
    refused: Any,
    sales: pd.DataFrame,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frame = sales.rename(columns={"shop": "id", "month": "timestamp", "sold": "target"})
    frame.to_parquet("m4_monthly.parquet", index=False)
    task = {"task_name": "sales", "dataset_path": "m4_monthly.parquet", "horizon": 6, "eval_metric": "MASE"}
    Path("tasks.yaml").write_text(json.dumps({"tasks": [task]}))
    suite = ("--suite", "fev:tasks.yaml") if road == "fev" else ("--suite", "gift-eval", "--data", ".")
    words = ("eval", "naive", *suite, "--out", "scores.csv")
    place = "rankscope_eval.fev_suite.run._measured" if road == "fev" else "rankscope_eval.gift_eval.run.score"
    plain, made = pydoc.locate(place), []

    def stopped(forecaster: Any, *rest: Any) -> Any:
        if len(made) == 1 and not Path("go").exists():
            raise KeyboardInterrupt
        made.append(forecaster.name)
        return plain(forecaster, *rest)

    monkeypatch.setattr(place, stopped)
    first = cli(*words)
    assert first.exit_code == 130
    assert "rerun with --resume" in first.stderr
    assert "go on with --resume, or start anew with --force" in refused(*words)
    Path("go").touch()
    result = cli(*words, again)
    assert result.exit_code == 0, result.stderr
    assert made == ["naive", *([] if again == "--resume" else ["naive"]), "seasonal-naive"]
    assert len(pd.read_csv("scores.csv")) == 2


def test_intervals_and_verdicts_stand_beside_the_scores() -> None:
    worse = Verdict("worse", 0.02, (1.13, 12.0), "taylor", 14.0, (1.1, 90.0))
    summary = (
        EvalSummary("mine", "naive", "long", 9, 0.9, 1.25, (), (0.8, 1.01), (1.125, 12.5), WQL_win_rate=4.5 / 9),
        EvalSummary("mine", "naive", "short", 1, 0.95, 0.97),
        EvalSummary("mine", "naive", "all", 10, 0.99, 1.2, (), (0.98, 1.0), (1.1, 13.0), Verdict("held", 0.02), worse),
    )
    slices = (
        Slice("mine", "horizon", "last quarter", 10, 40, 1.4, 1.3, (1.1, 1.8), (1.0, 1.7)),
        Slice("mine", "frequency", "h", 1, 4, 1.2, 1.1),
    )
    lines = shown(EvalReport("suite", "naive", 0, 20, 32, None, 1.0, (), summary, slices=slices))
    assert "worst slices of mine in WQL: horizon last quarter 1.400 (1.100–1.800)" in lines
    head = next(position for position, line in enumerate(lines) if "benchmark" in line)
    assert lines[head].split() == ["model", "benchmark", "ratio", "95", "%", "wins", "verdict"]
    assert lines[head + 2].split() == ["mine", "long", "(9)", "WQL", "1.250", "1.125–12.500", "0.50", "–"]
    assert lines[head + 3].split() == ["MASE", "0.900", "0.800–1.010", "–", "–"]
    assert lines[head + 4].split() == ["mine", "short", "(1)", "WQL", "0.970", "–", "–", "–"]
    assert lines[head + 6].split() == ["mine", "all", "(10)", "WQL", "1.200", "1.100–13.000", "–", "worse"]
    assert lines[head + 7].split() == ["MASE", "0.990", "0.980–1.000", "–", "held", "within", "2", "%"]
    assert "95 %: bootstrap over data sets and series" in lines
    assert "held: 90 % interval within 0.980–1.020, two one-sided tests at 5 %" in lines
    assert "worst of mine on all: WQL 14.000 on taylor (shown worse)" in lines
    without = shown(EvalReport("suite", "naive", 0, 20, 32, None, 1.0, (), summary[1:2]))
    assert not any("bootstrap" in line or "verdict:" in line for line in without)
    few = "–: an interval needs 3 data sets; of a single one, 3 series with an error"
    assert few in lines
    assert few in without
    assert few not in shown(EvalReport("suite", "naive", 0, 20, 32, None, 1.0, (), summary[:1]))


def test_metrics_are_chosen_and_all_are_in_files(cli: Any, refused: Any, tmp_path: Path) -> None:
    options = ("eval", "naive", "--tasks", "macrodata")
    table = cli(*options, "--metrics", "sql,coverage", "--out", str(tmp_path / "s.csv"))
    assert "SQL  coverage" in table.stdout
    assert "MASE     WQL" not in table.stdout
    frame = pd.read_csv(tmp_path / "s.csv")
    assert list(frame.columns[4:8]) == ["SQL", "WAPE", "MSIS", "coverage"]
    assert frame["SQL"].to_list() == pytest.approx(frame["MASE"].to_list(), rel=1e-6)  # of point forecasts
    assert "did you mean 'WAPE'" in refused(*options, "--metrics", "WAPPE")
    assert "--metrics is for suites of rankscope" in refused(
        "eval", "naive", "--suite", "fev:x.yaml", "--metrics", "SQL"
    )
    assert "--jobs is for suites of rankscope" in refused("eval", "naive", "--suite", "fev:x.yaml", "--jobs", "2")


def test_a_margin_is_used_and_checked(cli: Any, refused: Any) -> None:
    words = []
    for margin in ("0.001", "0.9"):
        found = cli("eval", "naive", "--tasks", "macrodata", "--margin", margin, "--json")
        (summary,) = json.loads(found.stdout)["summary"]
        assert summary["WQL_verdict"]["margin"] == float(margin)
        words.append(summary["WQL_verdict"]["word"])
    assert words[1] == "held"
    assert words[0] != "held"
    assert "--margin" in refused("eval", "naive", "--margin", "1.5")
    assert "share between 0 and 1" in refused("eval", "naive", "--margin", "0")


def shown(report: EvalReport) -> list[str]:
    """Terminal table of a report."""
    console = Console(file=io.StringIO(), width=80)
    show_eval(report, console)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_going_on_needs_a_place(cli: Any, refused: Any, measured: list[str]) -> None:
    assert "requires --out FILE" in refused(*TASKS[:-2], "--resume")
    assert measured == []
    Path("deep").mkdir()
    KEPT.with_name("go").touch()
    assert cli(*TASKS, "--resume").exit_code == 0  # where nothing was begun, it begins
    assert len(measured) == 4


def test_a_finished_result_is_older_than_no_weights_and_no_data(
    cli: Any, refused: Any, sales: pd.DataFrame, bolt_folder: Path
) -> None:
    model = Path(shutil.copytree(bolt_folder, "mine"))
    words = ("eval", "mine", "--input", "sales.csv", "-H", "6", "--id-column", "shop", "--out", "scores.csv")
    assert cli(*words).exit_code == 0
    assert cli(*words, "--resume").stderr == "scores.csv is finished: nothing to resume.\n"
    made = Path("scores.csv").stat().st_mtime
    for changed in (model / "model.safetensors", Path("sales.csv")):
        before = changed.stat().st_mtime
        os.utime(changed, (made + 5, made + 5))
        assert f"scores.csv is finished, and older than {changed}: choose another" in refused(*words, "--resume")
        os.utime(changed, (before, before))


def test_scores_take_no_place_of_a_suites_data(cli: Any, refused: Any, sales: pd.DataFrame) -> None:
    names = {"id_column": "shop", "time_column": "month", "target_column": "sold"}
    Path("suite.yaml").write_text(json.dumps([{"name": "shops", "prediction_length": 6, "offset": -6, **names}]))
    Path("sales.csv").rename("shops.csv")
    before = Path("shops.csv").read_bytes()
    for out in ("shops.csv", "shops.parquet", "./shops.json"):
        words = ("eval", "naive", "--suite", "suite.yaml", "--out", out, "--force")
        assert f"--out {out} would be read as data of the suite: give another name" in refused(*words)
    assert Path("shops.csv").read_bytes() == before
    assert cli(*words[:-3], "--out", "suite.csv").exit_code == 0
    assert "published" not in cli(*words[:-3]).stdout
