import csv
from pathlib import Path

import pytest

from rankscope.errors import DataError
from rankscope_eval import read_suite
from rankscope_eval.suites import Suite, Task, list_suites, load_suite, parse_task

GOOD = {"name": "x", "prediction_length": 4, "offset": -4, "num_rolls": 1, "hf_repo": "autogluon/chronos_datasets"}


def test_the_default_suite_comes_first() -> None:
    assert list_suites() == ("embedded", "chronos-in-domain", "chronos-zero-shot", "generated")


@pytest.mark.parametrize(("name", "tasks"), [("chronos-in-domain", 15), ("chronos-zero-shot", 27)])
def test_published_suites_are_complete(name: str, tasks: int) -> None:
    suite = load_suite(name)
    assert len(suite.tasks) == tasks
    assert {task.benchmark for task in suite.tasks} == {name.removeprefix("chronos-")}
    models = {score.model for score in suite.published}
    assert len(models) == 10
    assert len(suite.published) == tasks * len(models)
    assert {score.dataset for score in suite.published} == {task.name for task in suite.tasks}


def test_embedded_tasks_say_what_they_are() -> None:
    tasks = load_suite("embedded").tasks
    assert 10 <= len(tasks) <= 14
    for task in tasks:
        assert task.season_length is not None
        assert task.name.startswith("generated_") == (task.benchmark == "embedded-generated")


def test_generated_tasks_hold_a_set_for_every_kind_of_the_corpus() -> None:
    from rankscope.train.data.structured import KINDS as CORPUS
    from rankscope_eval.embedded import KIND_SERIES, KINDS, embedded_series

    tasks = load_suite("generated").tasks
    assert [task.embedded for task in tasks] == list(KINDS)
    assert {kind for kind, *_ in KINDS.values()} == set(CORPUS)
    first, again = (embedded_series("kind_counts_daily") for _ in range(2))
    assert len(first) == KIND_SERIES
    assert all((one.target == other.target).all() for one, other in zip(first, again, strict=True))


def test_published_scores_are_those_of_the_reference(shared_folder: Path) -> None:
    path = shared_folder / "data" / "benchmark" / "reference.csv"
    suites = [load_suite(name) for name in list_suites()[1:3]]
    ours = {(s.benchmark, s.dataset, s.model): (s.MASE, s.WQL) for suite in suites for s in suite.published}
    with path.open() as stream:
        rows = list(csv.DictReader(stream))
    assert rows
    for row in rows:
        assert ours[row["benchmark"], row["dataset"], row["model"]] == (float(row["MASE"]), float(row["WQL"]))


def test_the_layout_of_the_reference_suite_is_accepted(shared_folder: Path) -> None:
    suite = load_suite(shared_folder / "data" / "benchmark" / "backtest.yaml")
    assert [task.name for task in suite.tasks][:2] == ["ETTh", "m4_hourly"]
    assert suite.tasks[0].file == ("ETTh/ETTh1.csv", "ETTh/ETTh2.csv")
    assert len(suite.published) == 60


def test_a_suite_file_names_its_benchmark_and_its_published_scores(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("- {name: x, prediction_length: 4, offset: -8, num_rolls: 2}\n")
    (tmp_path / "mine.csv").write_text("# a source\ndataset,model,MASE,WQL\nx,m,1.5,0.25\nother,m,1,1\n")
    suite = load_suite(tmp_path / "mine.yaml")
    assert suite.tasks == (Task(name="x", prediction_length=4, offset=-8, num_rolls=2, benchmark="mine"),)
    assert [(s.dataset, s.MASE, s.WQL) for s in suite.published] == [("x", 1.5, 0.25)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"predicton_length": 4}, "field 'predicton_length' is not known: did you mean 'prediction_length'"),
        ({"name": None}, "here: name is missing"),
        ({"offset": None}, "offset is missing"),
        ({"prediction_length": 0}, "prediction_length has to be at least 1, not 0"),
        ({"prediction_length": "4"}, "prediction_length is '4': it must be a whole number"),
        ({"offset": 4}, "offset has to be negative"),
        ({"offset": -3}, "leaves no room for 1 window"),
        ({"num_rolls": 2}, "leaves no room for 2 window"),
        ({"num_rolls": 0}, "num_rolls has to be at least 1"),
        ({"file": [1]}, r"file\[0\] is 1: it must be text"),
        ({"season_length": 0}, "season_length has to be at least 1"),
    ],
)
def test_bad_fields_are_named(change: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_task({**GOOD, **change}, "here", "b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has to be a list of tasks"),
        ("name: x", "has to be a list of tasks"),
        ("- [1", "is not valid YAML"),
        ("- 3", "is not a mapping"),
        ("- {name: x, prediction_length: 1, offset: -1}\n- {name: x, prediction_length: 1, offset: -1}", "twice"),
    ],
)
def test_bad_yaml_gets_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        load_suite(tmp_path / "s.yaml")
    assert "\n" not in str(caught.value)


def test_an_unknown_suite_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"did you mean 'embedded'.*chronos-in-domain, chronos-zero-shot"):
        load_suite("embeded")
    (tmp_path / "mine.csv").write_text("date,value\n")
    with pytest.raises(DataError, match=r"holds series: name it in a suite, .*file: mine\.csv, prediction_length: 7"):
        load_suite(tmp_path / "mine.csv")
    with pytest.raises(DataError, match=r"gone\.yaml does not exist"):
        load_suite("gone.yaml")


def test_selecting_tasks_keeps_the_order_and_names_the_unknown() -> None:
    suite = load_suite("embedded")
    assert [t.name for t in suite.select(["nile", "co2"]).tasks] == ["co2", "nile"]
    with pytest.raises(DataError, match="did you mean 'nile'"):
        suite.select(["nil"])
    with pytest.raises(DataError, match="empty"):
        suite.select([])


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ("{name: x, file: mine.csv, prediction_length: 1, offset: -1}", "item_id,timestamp,target\na,2020-01-01,1\n"),
        ("{name: mine, prediction_length: 1, offset: -1}", "item_id,timestamp,target\na,2020-01-01,1\n"),
        ("{name: x, prediction_length: 1, offset: -1}", "dataset,model,MASE,WQL,baseline\nx,naive,1,1,naive\n"),
    ],
)
def test_series_and_own_results_of_the_suites_name_are_no_published_scores(
    tmp_path: Path, task: str, text: str
) -> None:
    (tmp_path / "mine.yaml").write_text(f"- {task}")
    (tmp_path / "mine.csv").write_text(text)
    assert load_suite(tmp_path / "mine.yaml").published == ()
    (tmp_path / "reference.csv").write_text("dataset,model,MASE,WQL\nx,m,1.5,0.25\nmine,m,1,1\n")
    assert len(load_suite(tmp_path / "mine.yaml").published) == 1


@pytest.mark.parametrize("text", ["dataset,model,MASE\nx,m,1\n", "dataset,model,MASE,WQL\nx,m,1,none\n"])
def test_published_scores_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.yaml").write_text("- {name: x, prediction_length: 1, offset: -1}")
    (tmp_path / "s.csv").write_text(text)
    with pytest.raises(DataError, match=r"s\.csv"):
        load_suite(tmp_path / "s.yaml")


def test_a_data_folder_may_bear_the_name_of_a_task(tmp_path: Path) -> None:
    """CSV files below DATA/NAME are wide tables, NAME.csv in DATA may be of any layout, whatever DATA is called."""
    task = parse_task({**GOOD, "freq": "MS", "prediction_length": 2, "offset": -2}, "mine", "mine")
    suite = Suite("mine", (task,), tmp_path)
    long = "item_id,timestamp,target\n" + "".join(f"a,2024-{n:02d}-01,{n}\n" for n in range(1, 9))
    wide = "date,u,v\n" + "".join(f"2024-{n:02d}-01,{n},{2 * n}\n" for n in range(1, 9))
    (tmp_path / "x" / "x").mkdir(parents=True)
    (tmp_path / "x" / "x.csv").write_text(long)
    assert [one.item_id for one in read_suite(suite, tmp_path / "x").series(task)] == ["a"]
    (tmp_path / "x" / "x.csv").unlink()
    (tmp_path / "x" / "x" / "first.csv").write_text(wide)
    assert [one.item_id for one in read_suite(suite, tmp_path / "x").series(task)] == ["first_u", "first_v"]
