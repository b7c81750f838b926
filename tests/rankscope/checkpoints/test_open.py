"""Reading: every source, sharding, number format and layout, within the promised memory."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import rankscope.checkpoints.sources as sources
from rankscope.checkpoints import Checkpoint, list_bundled, open_checkpoint
from rankscope.compress import CompressOptions, compress
from rankscope.errors import CheckpointError, OptionError

Make = Callable[..., Any]
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shards", [1, 3])
def test_tensors_are_those_that_safetensors_reads(
    dtype: torch.dtype, shards: int, tmp_path: Path, write_checkpoint: Make, tiny_config: Make
) -> None:
    folder = write_checkpoint(tmp_path / "m", tiny_config("chronos-t5"), dtype=dtype, shards=shards)
    stored: dict[str, torch.Tensor] = {}
    for file in folder.glob("*.safetensors"):
        stored.update(load_file(file))
    checkpoint = open_checkpoint(folder)
    assert checkpoint.index.keys() == stored.keys()
    assert len({info.file for info in checkpoint.index.values()}) == shards
    for name, tensor in stored.items():
        read = checkpoint.tensor(name)
        assert read.dtype == tensor.dtype == dtype
        assert torch.equal(read, tensor)
    assert checkpoint.parameters == sum(tensor.numel() for tensor in stored.values())
    assert checkpoint.bytes == sum(tensor.nbytes for tensor in stored.values())


@settings(max_examples=25, deadline=None)
@given(
    shapes=st.lists(st.lists(st.integers(0, 4), max_size=3), min_size=1, max_size=5),
    dtype=st.sampled_from([*DTYPES, torch.int64, torch.int8, torch.bool]),
)
def test_headers_are_those_that_safetensors_reads(
    shapes: list[list[int]], dtype: torch.dtype, tmp_path_factory: Any
) -> None:
    from rankscope.checkpoints.tensors import read_header, read_tensor

    file = tmp_path_factory.mktemp("any") / "any.safetensors"
    save_file({f"t{place}": torch.ones(shape, dtype=dtype) for place, shape in enumerate(shapes)}, file)
    header = read_header(file)
    stored = load_file(file)
    assert header.keys() == stored.keys()
    for name, tensor in stored.items():
        assert torch.equal(read_tensor(header[name]), tensor)
        assert header[name].shape == tuple(tensor.shape)


def test_a_tensor_owns_its_memory(chronos_t5_folder: Path) -> None:
    checkpoint = open_checkpoint(chronos_t5_folder)
    first = checkpoint.tensor("shared.weight")
    kept = first.clone()
    first.zero_()
    assert torch.equal(checkpoint.tensor("shared.weight"), kept)


def test_sites_and_matrices(chronos_t5_folder: Path) -> None:
    checkpoint = open_checkpoint(str(chronos_t5_folder))
    assert checkpoint.source == str(chronos_t5_folder)
    assert checkpoint.family.name == "chronos-t5"
    assert len(checkpoint.sites()) == 32
    for site in checkpoint.sites("all"):
        assert checkpoint.layout(site) == "dense"
        matrix = checkpoint.matrix(site)
        assert isinstance(matrix, torch.Tensor)
        assert torch.equal(matrix, checkpoint.tensor(site.name))


def test_zero_matrix_is_fine(tmp_path: Path, write_checkpoint: Make, tiny_config: Make, random_tensors: Make) -> None:
    config = tiny_config("t5")
    tensors = {name: torch.zeros_like(tensor) for name, tensor in random_tensors(config).items()}
    checkpoint = open_checkpoint(write_checkpoint(tmp_path / "m", config, tensors))
    assert all(not checkpoint.matrix(site).any() for site in checkpoint.sites("all"))  # type: ignore[union-attr]


def test_tied_copies_count_once(
    tmp_path: Path, write_checkpoint: Make, tiny_config: Make, random_tensors: Make
) -> None:
    config = tiny_config("chronos-t5")
    tensors = random_tensors(config)
    copies = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
    plain = open_checkpoint(write_checkpoint(tmp_path / "plain", config, tensors))
    copied = {**tensors, **{name: tensors["shared.weight"].clone() for name in copies}}
    full = open_checkpoint(write_checkpoint(tmp_path / "full", config, copied))
    assert full.parameters == plain.parameters
    assert full.bytes == plain.bytes + 3 * tensors["shared.weight"].nbytes


def test_a_tied_copy_of_a_sliced_model_in_any_order_of_its_config(chronos_t5_folder: Path, tmp_path: Path) -> None:
    """transformers writes the keys of a config in alphabetical order: the decoder's points before the encoder's."""
    how = CompressOptions(ratio=0.7, method="stream", calibration="mixture:4", probe="mixture:4")
    compress(chronos_t5_folder, how, out=tmp_path / "small")
    plain = open_checkpoint(tmp_path / "small")
    tensors = load_file(tmp_path / "small/model.safetensors")
    copied = {**tensors, "encoder.embed_tokens.weight": tensors["shared.weight"].clone()}
    save_file(copied, tmp_path / "small/model.safetensors")
    config = json.loads((tmp_path / "small/config.json").read_text())
    (tmp_path / "small/config.json").write_text(json.dumps(config, sort_keys=True))
    assert open_checkpoint(tmp_path / "small").parameters == plain.parameters


def test_embedding_under_the_name_of_its_copy(
    tmp_path: Path, write_checkpoint: Make, tiny_config: Make, random_tensors: Make
) -> None:
    config = tiny_config("chronos-t5")
    tensors = random_tensors(config)
    plain = open_checkpoint(write_checkpoint(tmp_path / "plain", config, tensors))
    renamed = {**tensors, "encoder.embed_tokens.weight": tensors["shared.weight"]}
    del renamed["shared.weight"]
    checkpoint = open_checkpoint(write_checkpoint(tmp_path / "renamed", config, renamed))
    assert torch.equal(checkpoint.tensor("shared.weight"), tensors["shared.weight"])
    assert checkpoint.parameters == plain.parameters


def factored(config: dict[str, Any], tensors: dict[str, Any], rank: int = 3) -> tuple[dict[str, Any], dict[str, Any]]:
    """Config and tensors of a compressed Chronos-T5 whose decoder's first queries are factored."""
    module = "decoder.block.0.layer.0.SelfAttention.q"
    tensors = dict(tensors)
    d_out, d_in = tensors.pop(f"{module}.weight").shape
    tensors[f"{module}.up.weight"] = torch.randn(d_out, rank)
    tensors[f"{module}.down.weight"] = torch.randn(rank, d_in)
    part = {
        "version": 1,
        "family": "chronos-t5",
        "method": "svd",
        "sites": {
            module: {"layout": "factored", "rank": rank},
            "encoder.block.0.layer.0.SelfAttention.k": {"layout": "dense"},
        },
    }
    return {**config, "model_type": "rankscope-t5", "rankscope": part}, tensors


def test_factored_sites(tmp_path: Path, write_checkpoint: Make, tiny_config: Make, random_tensors: Make) -> None:
    from rankscope.numerics.factored import FactoredMatrix

    config, tensors = factored(tiny_config("chronos-t5"), random_tensors(tiny_config("chronos-t5")))
    checkpoint = open_checkpoint(write_checkpoint(tmp_path / "small", config, tensors))
    layouts = {site.module: checkpoint.layout(site) for site in checkpoint.sites()}
    module = "decoder.block.0.layer.0.SelfAttention.q"
    assert [name for name, layout in layouts.items() if layout == "factored"] == [module]
    site = next(site for site in checkpoint.sites() if site.module == module)
    matrix = checkpoint.matrix(site)
    assert isinstance(matrix, FactoredMatrix)
    torch.testing.assert_close(matrix.dense(), tensors[f"{module}.up.weight"] @ tensors[f"{module}.down.weight"])
    assert checkpoint.shape(site) == matrix.shape == (8, 16)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 3}, r"version 3 is not known.*update rankscope"),
        ({"version": None}, "version None is not known"),
        ({"sites": None}, "an object named sites"),
        (
            {"sites": {"decoder.block.0.layer.0.SelfAttention.q": {"layout": "head-widths"}}},
            "head-width.*dense, factored",
        ),
        ({"sites": {"decoder.block.0.layer.0.SelfAttention.q": 3}}, "layout None|layout of"),
        ({"sites": {"decoder.block.0.layer.0.SelfAttention.q": {"layout": "factored", "rank": 0}}}, "found 0"),
        ({"sites": {"decoder.block.0.layer.0.SelfAttention.q": {"layout": "factored", "rank": 9}}}, "above 8"),
        (
            {"sites": {"decoder.block.9.q": {"layout": "factored", "rank": 2}}},
            r"decoder\.block\.9\.q.*not a linear layer",
        ),
        ({"sites": {"shared": {"layout": "factored", "rank": 2}}}, "'shared', which is not a linear layer"),
        ({"sites": {"decoder.block.0.layer.0.SelfAttention.q": {"layout": "factored", "rank": 4}}}, r"q\.up\.weight"),
        ({"family": "chronos-bolt"}, "rankscope.family 'chronos-bolt' is not known"),
    ],
)
def test_broken_layouts(
    change: dict[str, Any],
    message: str,
    tmp_path: Path,
    write_checkpoint: Make,
    tiny_config: Make,
    random_tensors: Make,
) -> None:
    config, tensors = factored(tiny_config("chronos-t5"), random_tensors(tiny_config("chronos-t5")))
    config["rankscope"] = {**config["rankscope"], **change}
    folder = write_checkpoint(tmp_path / "small", config, tensors)
    with pytest.raises(CheckpointError, match=message) as caught:
        open_checkpoint(folder)
    assert str(caught.value).startswith(f"{folder}: ")
    assert "\n" not in str(caught.value)


def test_biases_of_factored_layers_belong_to_up(
    tmp_path: Path, write_checkpoint: Make, tiny_config: Make, random_tensors: Make
) -> None:
    config = tiny_config("chronos-bolt")
    tensors = random_tensors(config)
    module = "input_patch_embedding.hidden_layer"
    d_out, d_in = tensors.pop(f"{module}.weight").shape
    tensors[f"{module}.up.bias"] = tensors.pop(f"{module}.bias")
    tensors[f"{module}.up.weight"], tensors[f"{module}.down.weight"] = torch.ones(d_out, 2), torch.ones(2, d_in)
    part = {"version": 1, "family": "chronos-bolt", "sites": {module: {"layout": "factored", "rank": 2}}}
    config = {**config, "model_type": "rankscope-bolt", "rankscope": part}
    checkpoint = open_checkpoint(write_checkpoint(tmp_path / "small", config, tensors))
    assert checkpoint.layout(checkpoint.sites("embedding")[0]) == "factored"


def test_bundled_names(tmp_path: Path, write_checkpoint: Make, tiny_config: Make, monkeypatch: Any) -> None:
    write_checkpoint(tmp_path / "carried" / "bundled", tiny_config("chronos-t5"))
    write_checkpoint(tmp_path / "carried" / "bundled-bolt", tiny_config("chronos-bolt"))
    (tmp_path / "carried" / "empty").mkdir()
    write_checkpoint(tmp_path / "here" / "bundled", tiny_config("t5"))
    monkeypatch.setattr(sources, "_BUNDLED", tmp_path / "carried")
    monkeypatch.chdir(tmp_path / "here")
    assert list_bundled() == ["bundled", "bundled-bolt"]
    assert open_checkpoint().family.name == "chronos-t5"
    assert open_checkpoint("bundled-bolt").family.name == "chronos-bolt"
    assert open_checkpoint("bundled").source == "bundled"
    assert open_checkpoint("./bundled").family.name == "t5"
    assert open_checkpoint(Path("bundled")).family.name == "t5"


def test_a_folder_may_be_named_from_home(
    tmp_path: Path, write_checkpoint: Make, tiny_config: Make, monkeypatch: Any
) -> None:
    write_checkpoint(tmp_path / "m", tiny_config("t5"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_checkpoint("~/m").family.name == "t5"


_MEASURE = """
import json, sys
import rankscope.checkpoints as checkpoints
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024
checkpoint = checkpoints.open_checkpoint(sys.argv[1])
before = peak()
for name in checkpoint.index:
    checkpoint.tensor(name)
heavy = [name for name in ("transformers", "chronos", "pandas", "typer", "matplotlib") if name in sys.modules]
print(json.dumps({"above": peak() - before, "bytes": checkpoint.bytes, "heavy": heavy}))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a fresh process is read from /proc, which is Linux's")
def test_reading_everything_takes_a_few_times_the_largest_tensor(
    tmp_path: Path, write_checkpoint: Make, tiny_config: Make
) -> None:
    sizes = {"d_model": 1024, "d_ff": 2048, "d_kv": 64, "num_heads": 16, "num_layers": 4, "num_decoder_layers": 4}
    config = tiny_config("t5", vocab_size=32, **sizes)
    folder = write_checkpoint(tmp_path / "large", config, shards=2)
    largest = 4 * 1024 * 2048
    for _ in range(3):  # what else the kernel maps around a page counts, too, now and then: never less than the tensors
        done = subprocess.run(
            [sys.executable, "-c", _MEASURE, str(folder)],
            capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        result = json.loads(done.stdout)
        if result["above"] < 5 * largest:  # the library maps the pages of a tensor and copies it, then it is a tensor
            break
    assert result["bytes"] > 190e6
    assert result["above"] < 5 * largest
    assert result["heavy"] == []


def test_repr_is_short(chronos_t5_folder: Path) -> None:
    checkpoint = open_checkpoint(chronos_t5_folder)
    assert isinstance(checkpoint, Checkpoint)
    assert len(repr(checkpoint)) < 400


def test_a_pickled_checkpoint_is_opened_again(chronos_t5_folder: Path) -> None:
    checkpoint = open_checkpoint(chronos_t5_folder)
    again = pickle.loads(pickle.dumps(checkpoint))
    assert (again.source, again.folder, again.config) == (checkpoint.source, checkpoint.folder, checkpoint.config)
    site = checkpoint.sites()[0]
    assert torch.equal(again.matrix(site), checkpoint.matrix(site))
    bundled = open_checkpoint("bundled-bolt")
    assert pickle.loads(pickle.dumps(bundled)).source == "bundled-bolt"


def test_something_else_than_a_name_is_refused() -> None:
    with pytest.raises(OptionError, match="a Linear is not a checkpoint: give a name, a folder"):
        open_checkpoint(torch.nn.Linear(2, 2))  # type: ignore[arg-type]
