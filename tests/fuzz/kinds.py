"""Kinds of input: how a valid one is made, how it is changed, and what reads it."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fuzz import evaluation, mutators, tables
from tests.fuzz.kind import Files, Kind, any_json, in_yaml, run

TESTS = Path(__file__).resolve().parents[1]


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


def any_weights(rng: random.Random, files: Files) -> Files:
    """Change one of the safetensors files of a seed."""
    name = rng.choice(sorted(one for one in files if one.endswith(".safetensors")))
    return {**files, name: mutators.safetensors_file(rng, files[name])}


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
    """A module of the tests that is not a part of a package."""
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
    from rankscope_eval.page.build import build_page

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


def recipes(folder: Path) -> None:
    """Recipes of compressions, beside the model that they are of."""
    ways = {
        "svd": ["--eps", "0.3"],
        "whitened": ["--method", "whitened", "--ratio", "0.9", "--calibration", "mixture:4"],
    }
    for name, words in ways.items():
        write_chronos(folder / name, "chronos-bolt")
        run("compress", str(folder / name), *words, "--out", str(folder / ".made"))
        (folder / ".made" / "recipe.yaml").rename(folder / name / "recipe.yaml")
        shutil.rmtree(folder / ".made")


def use_recipe(folder: Path) -> None:
    """Read a recipe, and make its options."""
    from rankscope import open_checkpoint
    from rankscope.compress import read_recipe

    read_recipe(folder / "recipe.yaml").options(open_checkpoint(folder))


def shards(folder: Path) -> None:
    """Shards of generated series, in both formats."""
    for form in ("arrow", "parquet"):
        words = ["--kind", "structured", "--n", "6", "--length", "24", "--min-length", "8", "--shard-size", "4"]
        run("synth", *words, "--format", form, "--out", str(folder / form))


def change_shards(rng: random.Random, files: Files) -> Files:
    """Change the index, or one of the shards."""
    if rng.randrange(3) == 0:
        return any_json(rng, files)
    name = rng.choice(sorted(one for one in files if one.endswith((".arrow", ".parquet"))))
    return {**files, name: mutators.data(rng, files[name])}


def use_shards(folder: Path) -> None:
    """Draw from a folder of shards; where its index tells the damage, read the shards without it."""
    import numpy as np

    from rankscope.errors import DataError
    from rankscope.train.data.shard_files import open_shard
    from rankscope.train.data.shards import open_shards

    try:
        opened = open_shards(folder)
        for number in range(min(len(opened), 8)):
            opened.series(number)
        opened.draw(np.random.default_rng(0), 4)
    except DataError:
        for file in sorted(one for one in folder.iterdir() if one.suffix in (".arrow", ".parquet")):
            reader = open_shard(file)
            for group in range(len(reader.groups) - 1):
                reader.group(group)
        raise


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
    "recipe": Kind(recipes, in_yaml("recipe.yaml"), use_recipe),
    "shards": Kind(shards, change_shards, use_shards),
    "stream": Kind(runs, any_json, use_run),
    "fev": Kind(evaluation.fev_tasks, in_yaml("tasks.yaml"), evaluation.use_fev),
    "fev-data": Kind(evaluation.fev_tasks, evaluation.change_sales, evaluation.use_fev),
    "gift": Kind(evaluation.gift_sets, evaluation.change_gift, evaluation.use_gift),
    "kept": Kind(evaluation.kept, evaluation.change_kept, evaluation.use_kept),
    "own": Kind(table("series.csv"), evaluation.change_own, evaluation.use_own),
    ITSELF: Kind(itself, lambda rng, files: {"number": str(rng.randrange(7)).encode()}, misbehave),
}
"""Kinds of input by name."""
