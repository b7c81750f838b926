"""Inputs of `eval`: tasks of fev and their data, GIFT-Eval's data sets, kept rows, files of one's own."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

from tests.fuzz import mutators, tables
from tests.fuzz.kind import Files, any_json, run

MONTHS = 30
"""Length of the series of benchmarks."""


def fev_tasks(folder: Path) -> None:
    """A file of two tasks of fev, on Parquet files of the long and of the list layout, and on Arrow."""
    import yaml

    metrics = {"seasonality": 12, "eval_metric": "SQL", "extra_metrics": ["MASE", {"name": "WQL"}]}
    common = {"quantile_levels": [0.1, 0.5, 0.9], "horizon": 3, "num_windows": 2, **metrics}
    columns = {"known_dynamic_columns": ["event"], "past_dynamic_columns": ["returns"], "static_columns": ["shop"]}
    dates = {"initial_cutoff": "2021-06-01", "window_step_size": "MS"}
    for name, ending in (("long", "parquet"), ("list", "parquet"), ("list", "arrow")):
        place = folder / f"{name}-{ending}"
        place.mkdir()
        file = f"sales.{ending}"
        (place / file).write_bytes(tables.sales_file(random.Random(0), ending, name, MONTHS))
        tasks = [
            {"task_name": "one", "dataset_path": file, **common, **columns},
            {"task_name": "two", "dataset_path": file, **common, **dates, "target": ["returns", "target"]},
        ]
        (place / "tasks.yaml").write_text(yaml.safe_dump({"tasks": tasks}))


def change_sales(rng: random.Random, files: Files) -> Files:
    """Change the data of one task of fev."""
    import yaml

    tasks = yaml.safe_load(files["tasks.yaml"])["tasks"]
    files = {**files, "tasks.yaml": yaml.safe_dump({"tasks": [rng.choice(tasks)]}).encode()}
    (name,) = (one for one in files if one.startswith("sales."))
    ending = name.rpartition(".")[2]
    made, odd = files[name], rng.randrange(3) > 0
    if odd:
        made = tables.sales_file(rng, ending, rng.choice(("long", "list")), MONTHS, odd=True)
    return {**files, name: made if odd and rng.randrange(3) else tables.damaged(rng, made, ending)}


def use_fev(folder: Path) -> None:
    """Score the naive forecast on tasks of fev."""
    words = ["eval", "naive", "--suite", f"fev:{folder / 'tasks.yaml'}", "--out", str(folder / "scores.csv")]
    run(*words)


SETS = {"us_births/M": ("M", 1), "bizitobs_l2c/H": ("H", 7)}
"""Data sets of GIFT-Eval by folder: frequency and variates."""


def gift_sets(folder: Path) -> None:
    """Data sets of GIFT-Eval, as `datasets` saves them."""
    import datasets
    import numpy as np
    import pandas as pd

    values = np.random.default_rng(0).random((7, 60)).round(3)
    for name, (freq, variates) in SETS.items():
        target = values[0].tolist() if variates == 1 else values.tolist()
        start = pd.Timestamp("2020-01-01")
        rows = [{"item_id": item, "start": start, "freq": freq, "target": target} for item in "ab"]
        datasets.Dataset.from_list(rows).save_to_disk(str(folder / name.replace("/", "-") / name))


def change_gift(rng: random.Random, files: Files) -> Files:
    """Change the JSON beside a data set, its Arrow file, or both."""
    (name,) = (one for one in files if one.endswith(".arrow"))
    made = any_json(rng, files) if rng.randrange(3) == 0 else files
    if made is files or rng.randrange(4) == 0:
        content = tables.gift_file(rng) if rng.randrange(2) else files[name]
        made = {**made, name: mutators.data(rng, content) if rng.randrange(3) else content}
    return made


def use_gift(folder: Path) -> None:
    """Score the naive forecast on data sets of GIFT-Eval, and write its submission."""
    names = ",".join(f"{name}/short" for name in SETS)
    words = ["eval", "naive", "--suite", "gift-eval", "--data", str(folder), "--tasks", names]
    run(*words, "--out", str(folder / "submissions"))


def kept(folder: Path) -> None:
    """Rows that interrupted runs on tasks of fev and on GIFT-Eval keep."""
    from rankscope_eval.fev_suite import evaluate_fev
    from rankscope_eval.gift_eval import evaluate_gift

    made = folder / ".made"
    for make in (fev_tasks, gift_sets):
        (made / make.__name__).mkdir(parents=True)
        make(made / make.__name__)
    with rows_by_model():
        for name, place in (("fev", made / "fev_tasks" / "long-parquet"), ("gift", made / "gift_sets" / "us_births-M")):
            shutil.copytree(place, folder / name)
            rows: dict[str, Any] = {"kept": folder / name / "kept", "tasks": [TASKS[name]]}
            if name == "fev":
                evaluate_fev(["naive"], folder / name / "tasks.yaml", **rows)
            else:
                evaluate_gift(["naive"], folder / name, **rows)
    shutil.rmtree(made)


TASKS = {"fev": "one", "gift": "us_births/M/short"}


def rows_by_model() -> Any:
    """Let rows be named by models alone, that they be found for data files of another place and time."""
    stack = contextlib.ExitStack()
    for name in ("fev_suite", "gift_eval"):
        stack.enter_context(mock.patch(f"rankscope_eval.{name}.run.row_key", lambda _, model, *rest: model))
    return stack


def change_kept(rng: random.Random, files: Files) -> Files:
    """Change one of the rows, or exchange the two."""
    first, second = (one for one in files if one.startswith("kept/rows/"))
    if rng.randrange(20) == 0:
        return {**files, first: files[second], second: files[first]}
    name = rng.choice((first, second))
    return {**files, name: mutators.json_file(rng, json.loads(files[name]))}


def use_kept(folder: Path) -> None:
    """Go on with a run from its rows."""
    (folder / "kept").rename(folder / ".scores.csv.rows")
    suite, name = ("gift-eval", "gift") if (folder / "us_births").is_dir() else (f"fev:{folder / 'tasks.yaml'}", "fev")
    words = ["eval", "naive", "--suite", suite, "--data", str(folder), "--tasks", TASKS[name]]
    with rows_by_model():
        run(*words, "--out", str(folder / "scores.csv"), "--resume")


def change_own(rng: random.Random, _: Files) -> Files:
    """Make a file of series, changed, in any format."""
    make = {
        "csv": tables.csv_file,
        "jsonl": tables.jsonl_file,
        "arrow": tables.arrow_file,
        "parquet": tables.parquet_file,
    }
    ending = rng.choice(tuple(make))
    return {f"series.{ending}": make[ending](rng, None)}


def use_own(folder: Path) -> None:
    """Score the naive forecast on a file of series."""
    (file,) = folder.glob("series.*")
    words = ["eval", "naive", "--input", str(file), "--horizon", "1", "--windows", "2"]
    run(*words, "--out", str(folder / "scores.json"))
