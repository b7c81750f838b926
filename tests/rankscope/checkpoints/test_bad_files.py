"""Folders that are missing, broken, unsafe or inconsistent: one line each, naming file and fix."""

from __future__ import annotations

import json
import re
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import rankscope.checkpoints.sources as sources
from rankscope.checkpoints import open_checkpoint
from rankscope.errors import CheckpointError, FamilyError

Make = Callable[..., Any]


def refused(model: Any, error: type[Exception] = CheckpointError) -> str:
    """Message with which opening ``model`` fails: one line, of a length that can be read."""
    with pytest.raises(error) as caught:
        open_checkpoint(model)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    return message


# --- which model ----------------------------------------------------------------------------------------------


def test_no_such_model(monkeypatch: Any, tmp_path: Path) -> None:
    for name in ("bundled", "bundled-bolt"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    monkeypatch.setattr(sources, "_BUNDLED", tmp_path)
    message = refused("bundeld")
    assert "no model 'bundeld': did you mean 'bundled'" in message
    assert "bundled, bundled-bolt" in message
    assert "owner/name" in message
    for name in ("./nowhere", "/nowhere/at/all", "a/b/c", Path("nowhere/model")):
        assert "here is no such folder" in refused(name)


def test_no_bundled_model(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(sources, "_BUNDLED", tmp_path / "absent")
    assert re.search("no model 'bundled'.*this installation carries no bundled model", refused(None))


def test_a_file_is_not_a_folder(chronos_t5_folder: Path) -> None:
    assert "is a file: pass the folder" in refused(chronos_t5_folder / "model.safetensors")


@pytest.mark.parametrize("url", ["s3://bucket/model", "https://huggingface.co/amazon/chronos-t5-tiny"])
def test_urls_are_refused(url: str) -> None:
    assert re.search("is a URL: .*hub id", refused(url))


# --- config.json ----------------------------------------------------------------------------------------------


def test_config_missing(chronos_t5_folder: Path) -> None:
    (chronos_t5_folder / "config.json").unlink()
    assert "has no config.json" in refused(chronos_t5_folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{not json", "config.json is not valid JSON"),
        (b"", "config.json is not valid JSON"),
        (b"\xff\xfe\x00", "config.json is not valid JSON"),
        (b"[" * 100_000, "config.json is not valid JSON"),
        (b"[1]", "config.json must hold a JSON object, found list"),
        (b'"x"', "found str"),
    ],
)
def test_config_invalid(content: bytes, message: str, chronos_t5_folder: Path) -> None:
    (chronos_t5_folder / "config.json").write_bytes(content)
    assert message in refused(chronos_t5_folder)


def test_config_is_a_folder(chronos_t5_folder: Path) -> None:
    (chronos_t5_folder / "config.json").unlink()
    (chronos_t5_folder / "config.json").mkdir()
    assert re.search(r"cannot read .*config\.json", refused(chronos_t5_folder))


def test_unknown_family(chronos_t5_folder: Path) -> None:
    (chronos_t5_folder / "config.json").write_text('{"model_type": "gpt2"}')
    save_file({"wte.weight": torch.ones(2, 2)}, chronos_t5_folder / "model.safetensors")
    message = refused(chronos_t5_folder, FamilyError)
    assert re.search("'gpt2'.*chronos-t5, chronos-bolt, chronos-2, .*t5", message)
    assert str(chronos_t5_folder) in message


def test_remote_code_is_never_asked_for(chronos_t5_folder: Path, monkeypatch: Any) -> None:
    config = json.loads((chronos_t5_folder / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "evil.Config", "AutoModelForSeq2SeqLM": "evil.Model"}
    (chronos_t5_folder / "config.json").write_text(json.dumps(config))
    (chronos_t5_folder / "evil.py").write_text(f"open({str(chronos_t5_folder / 'ran')!r}, 'w')")
    open_checkpoint(chronos_t5_folder).module()
    assert not (chronos_t5_folder / "ran").exists()


# --- weights --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "last.ckpt"])
def test_pickles_are_refused(name: str, chronos_t5_folder: Path) -> None:
    (chronos_t5_folder / "model.safetensors").unlink()
    (chronos_t5_folder / name).write_bytes(b"cos\nsystem\n")
    message = refused(chronos_t5_folder)
    assert "only pickled weights" in message
    assert name in message
    assert "save_pretrained" in message


def test_no_weights(chronos_t5_folder: Path) -> None:
    (chronos_t5_folder / "model.safetensors").unlink()
    assert "has no model.safetensors" in refused(chronos_t5_folder)


def test_truncated_at_every_kind_of_place(chronos_t5_folder: Path) -> None:
    file = chronos_t5_folder / "model.safetensors"
    whole = file.read_bytes()
    header = 8 + struct.unpack("<Q", whole[:8])[0]
    for size in (0, 3, 8, 20, header - 1, header, header + 5, len(whole) - 1):
        file.write_bytes(whole[:size])
        assert "model.safetensors is truncated, corrupt or no safetensors file" in refused(chronos_t5_folder)


def test_bytes_after_the_end(chronos_t5_folder: Path) -> None:
    file = chronos_t5_folder / "model.safetensors"
    file.write_bytes(file.read_bytes() + b"\0")
    assert "not fully covered" in refused(chronos_t5_folder)


@pytest.mark.parametrize("length", [10**6, 10**12, 2**63, 2**64 - 1])
def test_absurd_header_lengths_allocate_nothing(length: int, chronos_t5_folder: Path) -> None:
    file = chronos_t5_folder / "model.safetensors"
    file.write_bytes(struct.pack("<Q", length) + file.read_bytes()[8:])
    began = time.monotonic()
    assert "is truncated, corrupt or no safetensors file" in refused(chronos_t5_folder)
    assert time.monotonic() - began < 5


def test_a_pointer_of_git_lfs_is_named(chronos_t5_folder: Path) -> None:
    (chronos_t5_folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    assert "is a pointer of Git LFS: run 'git lfs pull'" in refused(chronos_t5_folder)


def write_header(file: Path, header: Any, data: bytes = b"") -> None:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(raw)) + raw + data)


def entry(**changes: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}


@pytest.mark.parametrize(
    "header",
    [
        b"{",
        b"\xff",
        b"[" * 50_000,
        [],
        {"a": 3},
        {"a": {}},
        {},
        {"a": entry(dtype="F5")},
        {"a": entry(shape=[3])},
        {"a": entry(shape=[-2])},
        {"a": entry(shape=[10**30])},
        {"a": entry(data_offsets=[8, 0])},
        {"a": entry(data_offsets=[4, 12])},
        {"a": entry(), "b": entry()},
        {"a": entry(shape=[3], data_offsets=[0, 12])},
    ],
)
def test_corrupt_headers(header: Any, chronos_t5_folder: Path) -> None:
    write_header(chronos_t5_folder / "model.safetensors", header, bytes(8))
    said = refused(chronos_t5_folder)
    assert "model.safetensors is truncated, corrupt or no safetensors file" in said
    assert "download or copy it again" in said


def test_a_number_format_that_is_no_weight_of_ours(chronos_t5_folder: Path) -> None:
    write_header(chronos_t5_folder / "model.safetensors", {"a": entry(dtype="C64", shape=[1])}, bytes(8))
    assert "number format 'C64' is not one of F64" in refused(chronos_t5_folder)


def test_a_tensor_larger_than_memory_is_not_allocated(chronos_t5_folder: Path) -> None:
    size = 4 * 10**15
    header = {"shared.weight": {"dtype": "F32", "shape": [10**15], "data_offsets": [0, size]}}
    write_header(chronos_t5_folder / "model.safetensors", header, bytes(64))
    assert "is truncated, corrupt or no safetensors file" in refused(chronos_t5_folder)


def test_a_file_that_shrinks_between_opening_and_reading(chronos_t5_folder: Path) -> None:
    checkpoint = open_checkpoint(chronos_t5_folder)
    file = chronos_t5_folder / "model.safetensors"
    last = max(checkpoint.index)
    file.write_bytes(file.read_bytes()[:-2])
    with pytest.raises(CheckpointError, match="truncated, corrupt"):
        checkpoint.tensor(last)
    file.unlink()
    with pytest.raises(CheckpointError, match=r"cannot read .*No such file"):
        checkpoint.tensor(last)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_nan_and_inf_name_the_tensor(
    value: float, dtype: torch.dtype, tmp_path: Path, write_checkpoint: Make, tiny_config: Make, random_tensors: Make
) -> None:
    config = tiny_config("chronos-t5")
    tensors = random_tensors(config)
    name = "encoder.block.1.layer.0.SelfAttention.v.weight"
    tensors[name][3, 5] = value
    checkpoint = open_checkpoint(write_checkpoint(tmp_path / "m", config, tensors, dtype=dtype))
    site = next(site for site in checkpoint.sites() if site.name == name)
    with pytest.raises(CheckpointError, match=rf"tensor {name} holds NaN or Inf"):
        checkpoint.matrix(site)
    for other in checkpoint.sites("all"):
        if other != site:
            checkpoint.matrix(other)


def test_unknown_tensor(chronos_t5_folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no tensor 'x\.weight'"):
        open_checkpoint(chronos_t5_folder).tensor("x.weight")


def test_quantised_weights(chronos_t5_folder: Path) -> None:
    file = chronos_t5_folder / "model.safetensors"
    tensors = load_file(file)
    tensors["shared.weight"] = tensors["shared.weight"].to(torch.int8)
    save_file(tensors, file)
    with pytest.raises(CheckpointError, match=r"shared\.weight is stored as int8.*unquantised"):
        open_checkpoint(chronos_t5_folder).tensor("shared.weight")


# --- shards ---------------------------------------------------------------------------------------------------


@pytest.fixture
def sharded(tmp_path: Path, write_checkpoint: Make, tiny_config: Make) -> Path:
    return write_checkpoint(tmp_path / "sharded", tiny_config("chronos-t5"), shards=2)


def edit_map(folder: Path, **changes: Any) -> None:
    file = folder / "model.safetensors.index.json"
    content = json.loads(file.read_text())
    content["weight_map"].update(changes)
    file.write_text(json.dumps(content))


def test_missing_shard(sharded: Path) -> None:
    (sharded / "model-00002-of-00002.safetensors").unlink()
    assert "names the shard model-00002-of-00002.safetensors, which is missing" in refused(sharded)


@pytest.mark.parametrize(
    "shard", ["../outside.safetensors", "/etc/passwd", "sub/x.safetensors", "x.bin", "..", "", 3, None, ["x"]]
)
def test_shards_outside_the_folder(shard: Any, sharded: Path) -> None:
    save_file({"shared.weight": torch.zeros(64, 16)}, sharded.parent / "outside.safetensors")
    edit_map(sharded, **{"shared.weight": shard})
    assert re.search(r"puts shared\.weight into .*not a safetensors file of this folder", refused(sharded))


def test_shard_that_lacks_its_tensor(sharded: Path) -> None:
    edit_map(sharded, ghost="model-00001-of-00002.safetensors")
    assert "puts ghost into model-00001-of-00002.safetensors, which does not hold it" in refused(sharded)


@pytest.mark.parametrize("content", ["{}", '{"weight_map": []}', '{"weight_map": {}}'])
def test_index_without_a_map(content: str, sharded: Path) -> None:
    (sharded / "model.safetensors.index.json").write_text(content)
    assert "weight_map must be a non-empty object" in refused(sharded)


def test_corrupt_shard(sharded: Path) -> None:
    file = sharded / "model-00001-of-00002.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    assert "model-00001-of-00002.safetensors is truncated" in refused(sharded)


# --- config against weights -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": 32}, r"disagree at shared\.weight: the config implies \[64, 32\], stored is \[64, 16\]"),
        ({"vocab_size": 65}, r"disagree at shared\.weight"),
        ({"num_heads": 4}, r"disagree at encoder\.block\.0\.layer\.0\.SelfAttention\.q\.weight.*\[16, 16\].*\[8, 16\]"),
        ({"d_ff": 25}, r"disagree at encoder\.block\.0\.layer\.1\.DenseReluDense\.wi\.weight"),
        (
            {"num_layers": 3},
            r"implies encoder\.block\.2\.layer\.0\.SelfAttention\.q\.weight \[8, 16\], which is not stored",
        ),
        ({"num_layers": 1}, r"encoder\.block\.1\..* is stored, but the config implies no such tensor"),
        ({"num_decoder_layers": 2}, r"decoder\.block\.2\..* is stored, but"),
        ({"relative_attention_num_buckets": 9}, r"relative_attention_bias\.weight.*\[9, 2\].*\[8, 2\]"),
        ({"feed_forward_proj": "gated-gelu"}, r"implies encoder\.block\.0\.layer\.1\.DenseReluDense\.wi_0\.weight"),
        ({"tie_word_embeddings": False}, r"implies lm_head\.weight \[64, 16\], which is not stored"),
        ({"is_encoder_decoder": False}, r"decoder\.block\.0\..* is stored, but"),
    ],
)
def test_config_and_weights_disagree(
    changes: dict[str, Any],
    message: str,
    tmp_path: Path,
    write_checkpoint: Make,
    tiny_config: Make,
    random_tensors: Make,
) -> None:
    config = tiny_config("chronos-t5")
    folder = write_checkpoint(tmp_path / "m", {**config, **changes}, random_tensors(config))
    said = refused(folder)
    assert re.search(message, said)
    assert "config.json and weights disagree" in said


def test_missing_norm_is_noticed(chronos_t5_folder: Path) -> None:
    file = chronos_t5_folder / "model.safetensors"
    tensors = load_file(file)
    del tensors["decoder.final_layer_norm.weight"]
    save_file(tensors, file)
    assert "implies decoder.final_layer_norm.weight [16], which is not stored" in refused(chronos_t5_folder)


def test_tied_copy_of_another_shape(chronos_t5_folder: Path) -> None:
    file = chronos_t5_folder / "model.safetensors"
    save_file({**load_file(file), "lm_head.weight": torch.zeros(63, 16)}, file)
    assert "disagree at lm_head.weight" in refused(chronos_t5_folder)


def test_the_unread_bias_of_old_conversions_is_allowed(chronos_t5_folder: Path) -> None:
    file = chronos_t5_folder / "model.safetensors"
    name = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    save_file({**load_file(file), name: torch.zeros(8, 2)}, file)
    assert name in open_checkpoint(chronos_t5_folder).index


def test_absurd_size_names_the_model(chronos_t5_folder: Path, tiny_config: Make) -> None:
    (chronos_t5_folder / "config.json").write_text(json.dumps(tiny_config("chronos-t5", d_model="wide")))
    message = refused(chronos_t5_folder)
    assert "d_model must be a whole number" in message
    assert message.startswith(f"{chronos_t5_folder}: config.json")
