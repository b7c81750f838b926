"""recipe.yaml: what a folder was made with makes it again, to the bit, of the same weights only."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from rankscope import open_checkpoint
from rankscope.compress import Budget, CompressOptions, compress, compress_to_loss, read_recipe
from rankscope.compress.calibration import calibrate, named_set
from rankscope.errors import DataError, FamilyError, OptionError
from rankscope.series import Columns
from rankscope_cli.app import app

FEW: dict[str, Any] = {"calibration": "mixture:8", "probe": "mixture:4"}
HOW: dict[str, dict[str, Any]] = {
    "ratio": {"ratio": 0.8, **FEW},
    "attention": {
        "attention_ratio": 0.6,
        "method": "whitened",
        "sites": "q,k,v",
        "refine": True,
        "seed": 3,
        "calibration": "mixture:8",
    },
    "refit": {"attention_ratio": 0.5, "method": "svd", "refine": True, "calibration": "kernelsynth:8"},
    "eps": {"eps": 0.3, "multiple": 2, "dtype": torch.bfloat16},
    "bytes": {"budget": Budget("bytes", 25_000), "storage": "int8", "allocation": "energy", "calibration": "mixture:8"},
    "stream": {"ratio": 0.8, "method": "stream", **FEW},
    "int8": {"storage": "int8"},
}


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("name", HOW)
def test_the_same_model_again(name: str, bolt_folder: Path, tmp_path: Path) -> None:
    source = open_checkpoint(bolt_folder)
    how = CompressOptions(**HOW[name])
    compress(source, how, out=tmp_path / "first")
    recipe = read_recipe(tmp_path / "first")
    again = recipe.options(open_checkpoint(bolt_folder))
    for one in fields(how):
        given = getattr(how, one.name)
        if given is not None and one.name not in ("sites", "dtype", "calibration"):
            assert getattr(again, one.name) == given
    compress(bolt_folder, again, out=tmp_path / "second")
    assert weights(tmp_path / "first") == weights(tmp_path / "second")
    assert (tmp_path / "first/recipe.yaml").read_text() == (tmp_path / "second/recipe.yaml").read_text()


@pytest.mark.parametrize(("kind", "decoder"), [("chronos-bolt", "teacher"), ("chronos-t5", "sampled")])
def test_moments_of_another_seed_are_made_again(
    kind: str, decoder: Any, write_checkpoint: Any, tiny_config: Any, tmp_path: Path
) -> None:
    """Twice: from the folder, and from the one that its recipe made."""
    source = open_checkpoint(write_checkpoint(tmp_path / "model", tiny_config(kind, num_decoder_layers=2)))
    moments = calibrate(source, named_set(source, "mixture:4", seed=5), seed=5, decoder=decoder)
    how = CompressOptions(attention_ratio=0.5, method="whitened", allocation="energy", calibration=moments)
    compress(source, how, out=tmp_path / "0")
    for number in range(2):
        again = read_recipe(tmp_path / str(number)).options(source)
        compress(source, again, out=tmp_path / str(number + 1))
    assert weights(tmp_path / "0") == weights(tmp_path / "1") == weights(tmp_path / "2")
    assert read_recipe(tmp_path / "2").calibration_seed == 5


@pytest.mark.parametrize("method", ["whitened", "joint+stream"])
@pytest.mark.parametrize("passes", [{"batch_size": 3}, {"dtype": "bfloat16"}])
def test_moments_that_were_collected_otherwise_are_made_again(
    passes: dict[str, Any], method: Any, bolt_folder: Path, tmp_path: Path
) -> None:
    source = open_checkpoint(bolt_folder)
    sites = [site for site in source.sites("all") if site.role != "embedding"]
    moments = calibrate(source, named_set(source, "mixture:8"), sites=tuple(sites), **passes)
    how = CompressOptions(ratio=0.7, method=method, calibration=moments, probe="mixture:4")
    how = how if method == "joint+stream" else replace(how, probe=None, ratio=None, attention_ratio=0.5)
    compress(source, how, out=tmp_path / "first")
    recipe = read_recipe(tmp_path / "first")
    assert (recipe.batch_size, recipe.passes) == (passes.get("batch_size"), passes.get("dtype"))
    compress(source, recipe.options(source), out=tmp_path / "again")
    assert weights(tmp_path / "first") == weights(tmp_path / "again")
    assert (tmp_path / "first/recipe.yaml").read_text() == (tmp_path / "again/recipe.yaml").read_text()


def test_columns_of_a_probe_beside_moments_are_kept(bolt_folder: Path, tmp_path: Path) -> None:
    source = open_checkpoint(bolt_folder)
    days = pd.date_range("2024-01-01", periods=40)
    parts = [pd.DataFrame({"shop": shop, "day": days, "sold": np.arange(40.0) % 7}) for shop in "ab"]
    pd.concat(parts).to_csv(tmp_path / "own.csv", index=False)
    names = Columns("shop", "day", "sold")
    how = CompressOptions(
        ratio=0.7,
        method="joint",
        calibration=calibrate(source, named_set(source, "mixture:8"), sites=source.sites("attention,mlp")),
        sites="attention,mlp",
        probe=str(tmp_path / "own.csv"),
        columns=names,
        refine=False,
    )
    compress(source, how, out=tmp_path / "first")
    assert read_recipe(tmp_path / "first").columns == names
    compress(source, read_recipe(tmp_path / "first").options(source), out=tmp_path / "again")
    assert weights(tmp_path / "first") == weights(tmp_path / "again")


@pytest.mark.slow
def test_a_size_that_was_searched_for_is_in_it(bolt_folder: Path, tmp_path: Path) -> None:
    report = compress_to_loss(
        bolt_folder,
        CompressOptions(**FEW),
        out=tmp_path / "found",
        max_loss=0.3,
        score=lambda folder: 2 - open_checkpoint(folder).parameters / open_checkpoint(bolt_folder).parameters,
        steps=5,
    )
    assert 0.7 <= report.ratio < 1
    compress(bolt_folder, read_recipe(tmp_path / "found").options(open_checkpoint(bolt_folder)), out=tmp_path / "again")
    assert weights(tmp_path / "found") == weights(tmp_path / "again")


def test_other_weights_and_damaged_recipes_are_refused(bolt_folder: Path, t5_folder: Path, tmp_path: Path) -> None:
    compress(bolt_folder, CompressOptions(eps=0.3), out=tmp_path / "small")
    with pytest.raises(OptionError, match="has other weights"):
        read_recipe(tmp_path / "small").options(open_checkpoint(t5_folder))
    compress(bolt_folder, CompressOptions(eps=0.3), out=tmp_path / "small2")
    file = tmp_path / "small/recipe.yaml"
    whole = file.read_text()
    file.write_text(whole.replace("calibration: null", "calibration: mixture:8").replace("data: null", "data: abc"))
    with pytest.raises(OptionError, match="which gives other series here"):
        read_recipe(file).options(open_checkpoint(bolt_folder))
    file.write_text(whole)
    file.write_text(file.read_text().replace("recipe@1", "recipe@9"))
    with pytest.raises(DataError, match=r"is rankscope/recipe@9: this release reads rankscope/recipe@1"):
        read_recipe(file)
    with pytest.raises(DataError, match="no file"):
        read_recipe(tmp_path / "none.yaml")
    with pytest.raises(DataError, match=r"Name recipe\.yaml of a compressed model, or its folder"):
        read_recipe(tmp_path / "small/README.md")
    with pytest.raises(FamilyError, match="no low-rank class"):
        read_recipe(tmp_path / "small2").options(open_checkpoint("bundled-patchtst"))


def test_the_command_line_takes_it_alone(bolt_folder: Path, tmp_path: Path) -> None:
    compress(bolt_folder, CompressOptions(eps=0.3, dtype="bfloat16"), out=tmp_path / "small")
    command = ["compress", str(bolt_folder), "--recipe", str(tmp_path / "small/recipe.yaml")]
    done = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "again")])
    assert done.exit_code == 0, done.output
    assert weights(tmp_path / "small") == weights(tmp_path / "again")
    for more in (["--eps", "0.1"], ["--seed", "1"], ["--max-loss", "0.1"], ["--no-refine"]):
        refused = CliRunner().invoke(app, [*command, *more, "--out", str(tmp_path / "other")])
        assert refused.exit_code != 0
        assert not (tmp_path / "other").exists()
