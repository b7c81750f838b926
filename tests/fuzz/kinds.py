"""Kinds of input: how a valid one is made, how it is changed, and what reads it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from tests.fuzz import mutators, tables

TESTS = Path(__file__).resolve().parents[1]
Files = dict[str, bytes]
"""Content by name."""


@dataclass(frozen=True)
class Kind:
    """One kind of input.

    Attributes:
        seeds: makes valid inputs in an empty folder, each a folder of its own.
        change: a changed copy of the files of a seed.
        use: reads what lies in a folder.
    """

    seeds: Callable[[Path], None]
    change: Callable[[random.Random, Files], Files]
    use: Callable[[Path], object]


def table(name: str) -> Callable[[Path], None]:
    """A valid file of two series."""

    def make(folder: Path) -> None:
        import pandas as pd

        times = pd.date_range("2024-01-01", periods=4).strftime("%Y-%m-%d").tolist()
        frame = pd.DataFrame({"item_id": [*"aaaabbbb"], "timestamp": times * 2, "target": range(8)})
        (folder / "valid").mkdir()
        file = folder / "valid" / name
        if file.suffix == ".csv":
            frame.to_csv(file, index=False)
        elif file.suffix == ".jsonl":
            frame.to_json(file, orient="records", lines=True)
        elif file.suffix == ".arrow":
            frame.to_feather(file)
        else:
            frame.to_parquet(file)

    return make


def one_file(name: str, mutate: Callable[[random.Random, Any], bytes]) -> Callable[[random.Random, Files], Files]:
    """Change a single file, which the mutator makes of nothing."""
    return lambda rng, _: {name: mutate(rng, None)}


def any_json(rng: random.Random, files: Files) -> Files:
    """Change one of the JSON files of a seed."""
    name = rng.choice(sorted(one for one in files if one.endswith(".json")))
    return {**files, name: mutators.json_file(rng, json.loads(files[name]))}


def any_weights(rng: random.Random, files: Files) -> Files:
    """Change one of the safetensors files of a seed."""
    name = rng.choice(sorted(one for one in files if one.endswith(".safetensors")))
    return {**files, name: mutators.safetensors_file(rng, files[name])}


def in_yaml(name: str) -> Callable[[random.Random, Files], Files]:
    """Change a YAML file."""

    def change(rng: random.Random, files: Files) -> Files:
        import yaml

        return {**files, name: mutators.yaml_file(rng, yaml.safe_load(files[name]))}

    return change


def run(*words: str) -> None:
    """Run a verb in this process, to its end or to one line of error.

    Raises:
        DataError: the user can act on what is wrong.
        AssertionError: anything else is.
    """
    from typer.testing import CliRunner

    from rankscope.errors import DataError
    from rankscope_cli.app import app

    done = CliRunner().invoke(app, [*words, "--debug"])
    errors = [line for line in done.output.splitlines() if line.startswith("error")]
    if (done.exit_code, len(errors)) == (2, 1):
        raise DataError(errors[0])
    if done.exit_code:
        raise AssertionError(f"{words[0]} ended with {done.exit_code}: {done.output[-1_000:]}") from done.exception


NATIVE = (
    "timesfm",
    "timesfm-2.5",
    "patchtst",
    "patchtsmixer-attention",
    "informer",
    "autoformer",
    "bert",
    "vit",
    "llama",
    "gpt2",
)
CHRONOS = ("chronos-t5", "chronos-bolt", "chronos-2", "t5-gated")


def checkpoints(folder: Path) -> None:
    """Small checkpoints of many families; of Chronos also in shards, in int8, and cut in all ways."""
    import torch
    import transformers

    from rankscope.compress import CompressOptions, compress

    native = _module(TESTS / "rankscope" / "families" / "conftest.py").MODELS
    for name in NATIVE:
        config, model, settings = native[name]
        torch.manual_seed(0)
        getattr(transformers, model)(getattr(transformers, config)(**settings)).save_pretrained(folder / name)
    for name in CHRONOS:
        write_chronos(folder / name, name)
    write_chronos(folder / "shards", "chronos-t5", shards=2)
    how = {"attention_ratio": 0.5}
    compress(folder / "chronos-bolt", CompressOptions(method="svd", **how), out=folder / "factored")
    compress(folder / "chronos-t5", CompressOptions(storage="int8"), out=folder / "int8")
    joint = CompressOptions(method="joint", calibration="mixture:4", probe="mixture:4", refine=False, **how)
    compress(folder / "chronos-bolt", joint, out=folder / "joint")


def write_chronos(folder: Path, kind: str, shards: int = 1) -> None:
    """A random Chronos checkpoint, in one file or several."""
    import torch
    from safetensors.torch import save_file

    from rankscope.families import family_of

    config = _module(TESTS / "conftest.py")._CONFIGS[kind]
    generator = torch.Generator().manual_seed(0)
    shapes = family_of(config).expected_shapes(config)
    tensors = {name: torch.randn(shape, generator=generator) * shape[-1] ** -0.5 for name, shape in shapes.items()}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    names = [f"model-{at + 1:05d}-of-{shards:05d}.safetensors" for at in range(shards)]
    if shards == 1:
        names = ["model.safetensors"]
    parts = [dict(list(tensors.items())[at::shards]) for at in range(shards)]
    for name, part in zip(names, parts, strict=True):
        save_file(part, folder / name, metadata={"format": "pt"})
    if shards > 1:
        places = {tensor: name for name, part in zip(names, parts, strict=True) for tensor in part}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def _module(file: Path) -> Any:
    """A module of the tests that is no part of a package."""
    spec = importlib.util.spec_from_file_location(f"fuzz_{file.parent.name}_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def use_checkpoint(folder: Path) -> None:
    """Open a checkpoint, measure the ranks of all its matrices, and build its module."""
    from rankscope import measure_spectrum, open_checkpoint

    checkpoint = open_checkpoint(folder)
    _ = checkpoint.parameters, checkpoint.bytes
    measure_spectrum(checkpoint, eps=(0.1,), sites="all")
    checkpoint.module()


def moments(folder: Path) -> None:
    """Saved moments of a small Chronos-Bolt."""
    write_chronos(folder / "model", "chronos-bolt")
    (folder / "moments").mkdir()
    file = folder / "moments" / "moments.safetensors"
    run("calibrate", str(folder / "model"), "--calibration", "mixture:4", "--out", str(file))
    shutil.rmtree(folder / "model")


def use_moments(folder: Path) -> None:
    """Load moments."""
    from rankscope.compress.calibration.statistics import load_calibration

    load_calibration(folder / "moments.safetensors")


def results(folder: Path) -> None:
    """Results of most verbs on small models, each as a folder with one document."""
    model = str(folder / ".model")
    write_chronos(Path(model), "chronos-bolt")
    commands = {
        "spectrum": ["spectrum", model, "--eps", "0.1"],
        "flow": ["flow", model, "--n", "3", "--length", "32"],
        "embed": ["embed", model],
        "eval": ["eval", model, "--max-series", "1", "--tasks", "co2"],
        "bench": ["bench", f"{model}:fast", "naive", "--rounds", "1", "--horizon", "8", "--context", "32"],
        "theory": ["theory", "--instances", "2"],
    }
    for name, words in commands.items():
        (folder / name).mkdir()
        run(*words, "--out", str(folder / name / "result.json"))
    made = folder / "compress"
    run("compress", model, "--eps", "0.3", "--out", str(made))
    for file in made.iterdir():
        if file.name != "compress.json":
            file.unlink()
    shutil.rmtree(model)


def use_results(folder: Path) -> None:
    """Draw the page of a folder's results."""
    from rankscope_eval.page import build_page

    build_page(folder)


def suites(folder: Path) -> None:
    """A suite with its data and published scores."""
    (folder / "suite").mkdir()
    tasks = [
        {"name": "one", "file": "series.csv", "prediction_length": 3, "offset": -6, "num_rolls": 2, "freq": "MS"},
        {"name": "two", "file": ["series.csv"], "prediction_length": 4, "offset": -4, "season_length": 12},
    ]
    (folder / "suite" / "suite.yaml").write_text(json.dumps(tasks))
    lines = ["item_id,timestamp,target", *(f"a,20{20 + at // 12}-{1 + at % 12:02d}-01,{at}" for at in range(36))]
    (folder / "suite" / "series.csv").write_text("\n".join(lines))
    (folder / "suite" / "reference.csv").write_text("dataset,model,MASE,WQL\none,naive,1.0,0.5\n")


def change_suite(rng: random.Random, files: Files) -> Files:
    """Change the suite, or the published scores beside it."""
    if rng.randrange(4) == 0:
        return {**files, "reference.csv": mutators.data(rng, files["reference.csv"])}
    return in_yaml("suite.yaml")(rng, files)


def use_suite(folder: Path) -> None:
    """Score the naive forecast on a suite."""
    from rankscope_eval import evaluate

    evaluate(["naive"], suite=folder / "suite.yaml", data=folder)


def configs(folder: Path) -> None:
    """Configs of trainings and of a sweep."""
    from importlib.resources import files

    shipped = Path(str(files("rankscope.train") / "configs"))
    for file in sorted(shipped.glob("*.yaml")):
        (folder / file.stem).mkdir()
        (folder / file.stem / "config.yaml").write_bytes(file.read_bytes())


def use_config(folder: Path) -> None:
    """Read the config of a training."""
    from rankscope.train.config import read_config

    read_config(folder / "config.yaml")


def runs(folder: Path) -> None:
    """A stream of forecasts in parts."""
    (folder / "stream").mkdir()
    lines = ["item_id,timestamp,target", *(f"i{at // 3},2024-01-0{1 + at % 3},{at}" for at in range(18))]
    (folder / "stream" / "series.csv").write_text("\n".join(lines))
    run(*forecast(folder / "stream"))


def forecast(folder: Path, *more: str) -> list[str]:
    """Words of a forecast into parts."""
    words = ["forecast", "naive", "--input", str(folder / "series.csv"), "--horizon", "2", "--chunk", "2"]
    return [*words, "--freq", "D", "--out", str(folder / "parts"), *more]


def use_run(folder: Path) -> None:
    """Go on with a stream of forecasts."""
    run(*forecast(folder, "--resume"))


def series(name: str) -> Callable[[Path], None]:
    """Read a file of series whole, and as a stream."""

    def use(folder: Path) -> None:
        from rankscope.errors import RankscopeError
        from rankscope.series import read_series
        from rankscope.series.reader import to_series
        from rankscope.series.stream import open_stream

        wrong: list[RankscopeError] = []
        try:
            read_series(folder / name)
        except RankscopeError as error:
            wrong.append(error)
        stream = open_stream(folder / name, 3)
        for chunk in stream.chunks:
            to_series(chunk, stream.layout, name, stream.source.unit)
        if wrong:
            raise wrong[0]

    return use


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
    (folder / "kept").rename(folder / ".scores.csv.partial")
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


def itself(folder: Path) -> None:
    """A number that is harmless."""
    (folder / "valid").mkdir()
    (folder / "valid" / "number").write_text("0")


def misbehave(folder: Path) -> None:
    """Do what fuzzing has to find out: the runner is tried with it."""
    from rankscope.errors import DataError

    number = int((folder / "number").read_text()) % 7
    if number == 1:
        raise DataError("as it should be")
    if number == 2:
        raise KeyError("no error for a user")
    if number == 3:
        os.abort()
    if number == 4:
        time.sleep(3_600)
    if number == 5:
        bytearray(1_400_000_000)[::4_096] = b"1" * 341_797


ITSELF = "itself"
KINDS: dict[str, Kind] = {
    "csv": Kind(table("series.csv"), one_file("series.csv", tables.csv_file), series("series.csv")),
    "jsonl": Kind(table("series.jsonl"), one_file("series.jsonl", tables.jsonl_file), series("series.jsonl")),
    "arrow": Kind(table("series.arrow"), one_file("series.arrow", tables.arrow_file), series("series.arrow")),
    "parquet": Kind(table("series.parquet"), one_file("series.parquet", tables.parquet_file), series("series.parquet")),
    "weights": Kind(checkpoints, any_weights, use_checkpoint),
    "model-config": Kind(checkpoints, any_json, use_checkpoint),
    "moments": Kind(moments, any_weights, use_moments),
    "results": Kind(results, any_json, use_results),
    "suite": Kind(suites, change_suite, use_suite),
    "train-config": Kind(configs, in_yaml("config.yaml"), use_config),
    "stream": Kind(runs, any_json, use_run),
    "fev": Kind(fev_tasks, in_yaml("tasks.yaml"), use_fev),
    "fev-data": Kind(fev_tasks, change_sales, use_fev),
    "gift": Kind(gift_sets, change_gift, use_gift),
    "kept": Kind(kept, change_kept, use_kept),
    "own": Kind(table("series.csv"), change_own, use_own),
    ITSELF: Kind(itself, lambda rng, files: {"number": str(rng.randrange(7)).encode()}, misbehave),
}
"""Kinds of input by name."""
