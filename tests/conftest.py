"""Tiny checkpoints in the published formats, shared by every test."""

from __future__ import annotations

import functools
import gc
import inspect
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jaxtyping
import pytest
import torch
from jaxtyping import config, install_import_hook
from torch import Tensor

if TYPE_CHECKING:
    from rankscope.train import PretrainConfig

Writer = Callable[..., Path]
ROOT = Path(__file__).resolve().parents[1]


def _modules_with_axes() -> list[str]:
    """Modules whose annotations name the axes of arrays; in the others mypy is enough, and far faster."""
    files = [
        (folder, file) for folder in ("src", "eval", "figures", "lab") for file in (ROOT / folder).rglob("[!_]*.py")
    ]
    return [
        ".".join(file.relative_to(ROOT / folder).with_suffix("").parts)
        for folder, file in files
        if "from jaxtyping import" in file.read_text("utf-8")
    ]


CHECKED = 20
"""Calls of a function whose types are checked in one test. Later ones would find little and take half of the time."""
_calls: Counter[int] = Counter()
_jaxtyped = jaxtyping.jaxtyped


def _first_calls_typed(*functions: Any, **settings: Any) -> Any:
    """Take the place of `jaxtyping.jaxtyped`, by which the hook decorates functions and dataclasses."""
    decorate = _jaxtyped(*functions, **settings)
    if functions:
        return decorate

    def decorated(function: Any) -> Any:
        if not inspect.isfunction(function):
            return decorate(function)
        code, typed = id(function.__code__), []  # a function within another one has one code and many objects

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if _calls[code] >= CHECKED:
                return function(*args, **kwargs)
            _calls[code] += 1
            if not typed:
                typed.append(decorate(function))
            return typed[0](*args, **kwargs)

        return call

    return decorated


jaxtyping.jaxtyped = _first_calls_typed
install_import_hook(_modules_with_axes(), "beartype.beartype")


@pytest.fixture(autouse=True)
def _calls_anew() -> None:
    """Check the types of the first calls in every test."""
    _calls.clear()


def pytest_collection_finish() -> None:
    """Leave what was imported out of later garbage collections: each training asks for one, half a second long."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def untyped() -> Iterator[None]:
    """Let a test pass what the types forbid, as a user can: elsewhere they are checked while tests run."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


_T5 = {
    "model_type": "t5",
    "architectures": ["T5ForConditionalGeneration"],
    "d_model": 16,
    "d_kv": 4,
    "d_ff": 24,
    "num_heads": 2,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "vocab_size": 64,
    "feed_forward_proj": "relu",
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 32,
    "layer_norm_epsilon": 1e-6,
    "dropout_rate": 0.1,
    "initializer_factor": 0.05,
    "is_encoder_decoder": True,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
    "use_cache": True,
}
_QUANTILES = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
_CONFIGS: dict[str, dict[str, Any]] = {
    "t5": _T5,
    "t5-gated": {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "chronos-t5": {
        **_T5,
        "chronos_config": {
            "tokenizer_class": "MeanScaleUniformBins",
            "tokenizer_kwargs": {"low_limit": -15.0, "high_limit": 15.0},
            "n_tokens": 64,
            "n_special_tokens": 2,
            "pad_token_id": 0,
            "eos_token_id": 1,
            "use_eos_token": True,
            "model_type": "seq2seq",
            "context_length": 32,
            "prediction_length": 8,
            "num_samples": 20,
            "temperature": 1.0,
            "top_k": 50,
            "top_p": 1.0,
        },
    },
    "chronos-bolt": {
        **_T5,
        "architectures": ["ChronosBoltModelForForecasting"],
        "chronos_pipeline_class": "ChronosBoltPipeline",
        "vocab_size": 2,
        "reg_token_id": 1,
        "chronos_config": {
            "context_length": 32,
            "input_patch_size": 4,
            "input_patch_stride": 4,
            "prediction_length": 8,
            "quantiles": _QUANTILES,
            "use_reg_token": True,
        },
    },
    "chronos-2": {
        "model_type": "t5",
        "architectures": ["Chronos2Model"],
        "chronos_pipeline_class": "Chronos2Pipeline",
        "d_model": 16,
        "d_kv": 4,
        "d_ff": 24,
        "num_heads": 2,
        "num_layers": 2,
        "vocab_size": 2,
        "feed_forward_proj": "relu",
        "dense_act_fn": "relu",
        "is_gated_act": False,
        "layer_norm_epsilon": 1e-6,
        "dropout_rate": 0.1,
        "initializer_factor": 0.05,
        "pad_token_id": 0,
        "reg_token_id": 1,
        "rope_theta": 10000.0,
        "chronos_config": {
            "context_length": 64,
            "input_patch_size": 4,
            "input_patch_stride": 4,
            "output_patch_size": 4,
            "max_output_patches": 4,
            "quantiles": _QUANTILES,
            "time_encoding_scale": 64,
            "use_arcsinh": True,
            "use_reg_token": True,
        },
    },
}


@pytest.fixture(scope="session")
def tiny_config() -> Callable[..., dict[str, Any]]:
    """``tiny_config("chronos-t5", num_layers=1)``: a fresh config; also chronos-bolt, chronos-2, t5, t5-gated."""

    def make(kind: str, **changes: Any) -> dict[str, Any]:
        config = json.loads(json.dumps(_CONFIGS[kind]))
        return {**config, **changes}

    return make


@pytest.fixture(scope="session")
def random_tensors() -> Callable[..., dict[str, Tensor]]:
    """``random_tensors(config, seed=0)``: every tensor of a dense checkpoint; layer norms are one."""

    def make(config: Mapping[str, Any], seed: int = 0) -> dict[str, Tensor]:
        from rankscope.families import family_of

        generator = torch.Generator().manual_seed(seed)
        return {
            name: torch.ones(shape)
            if name.endswith("layer_norm.weight")
            else torch.randn(shape, generator=generator) * shape[-1] ** -0.5
            for name, shape in family_of(config).expected_shapes(config).items()
        }

    return make


@pytest.fixture(scope="session")
def write_checkpoint(random_tensors: Callable[..., dict[str, Tensor]]) -> Writer:
    """``write_checkpoint(folder, config, tensors=None, dtype=float32, shards=1)``: a folder as published."""

    def write(
        folder: Path,
        config: Mapping[str, Any],
        tensors: Mapping[str, Tensor] | None = None,
        dtype: torch.dtype = torch.float32,
        shards: int = 1,
    ) -> Path:
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(dict(config), indent=2))
        if config.get("is_encoder_decoder"):
            special = {key: config[key] for key in ("pad_token_id", "eos_token_id", "decoder_start_token_id")}
            (folder / "generation_config.json").write_text(json.dumps(special))
        stored = {
            name: tensor.to(dtype).contiguous()
            for name, tensor in (random_tensors(config) if tensors is None else tensors).items()
        }
        if shards == 1:
            save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
            return folder
        names = sorted(stored)
        weight_map = {}
        for shard in range(shards):
            file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
            part = {name: stored[name] for name in names[shard::shards]}
            save_file(part, folder / file, metadata={"format": "pt"})
            weight_map.update(dict.fromkeys(part, file))
        index = {"metadata": {"total_size": sum(t.nbytes for t in stored.values())}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        return folder

    return write


@pytest.fixture
def chronos_t5_folder(tmp_path: Path, write_checkpoint: Writer, tiny_config: Callable[..., Any]) -> Path:
    """Write a random Chronos-T5."""
    return write_checkpoint(tmp_path / "chronos-t5", tiny_config("chronos-t5"))


@pytest.fixture
def bolt_folder(tmp_path: Path, write_checkpoint: Writer, tiny_config: Callable[..., Any]) -> Path:
    """Write a random Chronos-Bolt."""
    return write_checkpoint(tmp_path / "chronos-bolt", tiny_config("chronos-bolt"))


@pytest.fixture
def chronos2_folder(tmp_path: Path, write_checkpoint: Writer, tiny_config: Callable[..., Any]) -> Path:
    """Write a random Chronos-2."""
    return write_checkpoint(tmp_path / "chronos-2", tiny_config("chronos-2"))


@pytest.fixture
def t5_folder(tmp_path: Path, write_checkpoint: Writer, tiny_config: Callable[..., Any]) -> Path:
    """Write a random text T5 v1.0: ReLU, tied head."""
    return write_checkpoint(tmp_path / "t5", tiny_config("t5"))


@pytest.fixture
def t5_gated_folder(tmp_path: Path, write_checkpoint: Writer, tiny_config: Callable[..., Any]) -> Path:
    """Write a random text T5 v1.1: gated GELU, untied head."""
    return write_checkpoint(tmp_path / "t5-gated", tiny_config("t5-gated"))


@pytest.fixture(scope="session")
def write_table() -> Callable[[Any, Path], Path]:
    """``write_table(frame, folder / "x.csv")``: the ending says the format; ``stream.arrow`` is a stream."""

    def write(frame: Any, path: Path) -> Path:
        import pyarrow as pa

        if path.suffix == ".parquet":
            frame.to_parquet(path)
        elif path.suffix == ".csv":
            frame.to_csv(path, index=False)
        elif path.suffix == ".jsonl":
            lines = (json.dumps(row, default=str).replace("NaN", "null") for row in frame.to_dict("records"))
            path.write_text("\n".join(lines) + "\n\n")
        else:
            table = pa.Table.from_pandas(frame, preserve_index=False)
            new = pa.ipc.new_stream if path.stem == "stream" else pa.ipc.new_file
            with pa.OSFile(str(path), "wb") as sink, new(sink, table.schema) as writer:
                writer.write_table(table)
        return path

    return write


@pytest.fixture(scope="session")
def tiny() -> Callable[..., PretrainConfig]:
    """``tiny("chronos-t5", max_steps=3)``: a training that takes a second."""

    def make(family: str = "chronos-bolt", **changes: Any) -> PretrainConfig:
        from rankscope.train import ModelShape, PretrainConfig

        shape = ModelShape(
            d_model=16, d_kv=4, d_ff=16, num_layers=1, num_decoder_layers=1, num_heads=2, n_tokens=64, patch_size=8
        )
        sizes = {"model": shape, "context": 32, "horizon": 8, "bank_kernels": 2, "bank_draws": 3, "batch_size": 4}
        steps = {"max_steps": 6, "warmup_steps": 1, "save_steps": 3, "log_steps": 1}
        return PretrainConfig(family=family, **{**sizes, **steps, **changes})

    return make


@pytest.fixture(scope="session")
def group_ends() -> Callable[[int], bool]:
    """``group_ends(pid)``: no process of the group is left, at once or within a minute."""

    def ends(group: int) -> bool:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                os.killpg(group, 0)
            except ProcessLookupError:
                return True
            time.sleep(0.05)
        return False

    return ends


@pytest.fixture(scope="session")
def shared_folder() -> Path:
    """Folder of published models and data beside the project, which no copy of the project itself holds.

    Tests that need it skip where the whole folder is absent, and fail where only a file of it is.
    """
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip(f"no published models and data: {folder} is absent")
    return folder
