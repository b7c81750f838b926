"""Safetensors files of a folder, opened anew for every tensor: mapped pages stay resident until a file is closed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from rankscope.errors import CheckpointError
from rankscope.io import codec

DTYPES: dict[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
WEIGHT_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class TensorInfo:
    """Place of one stored tensor.

    Attributes:
        file: safetensors file that holds it.
        name: its name there.
        shape: its axes.
        dtype: its number format.
    """

    file: Path
    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        """Stored size in bytes."""
        return prod(self.shape) * self.dtype.itemsize


def read_header(file: Path) -> dict[str, TensorInfo]:
    """List the tensors of a safetensors file, whose header and size the library compares.

    Raises:
        CheckpointError: the file cannot be read, or is truncated, corrupt or no safetensors file.
    """
    with _opened(file) as held:
        slices = {name: held.get_slice(name) for name in held.keys()}  # noqa: SIM118
        unknown = {one.get_dtype() for one in slices.values()} - set(DTYPES)
        if unknown:
            raise CheckpointError(f"{file}: number format {min(unknown)!r} is not one of {', '.join(DTYPES)}.")
        return {
            name: TensorInfo(file, name, tuple(one.get_shape()), DTYPES[one.get_dtype()])
            for name, one in slices.items()
        }


def read_tensor(info: TensorInfo) -> Tensor:
    """Read one tensor into memory of its own.

    Raises:
        CheckpointError: the file cannot be read, or has changed since its header was.
    """
    with _opened(info.file) as held:
        return held.get_tensor(info.name).clone()


_LFS = b"version https://git-lfs"
LARGEST_JSON = 64 * 2**20
"""Bytes of a JSON file beside weights, at most."""


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    try:
        with safe_open(file, framework="pt") as held:
            yield held
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error.strerror or error}.") from error
    except SafetensorError as error:
        with file.open("rb") as start:
            if start.read(len(_LFS)) == _LFS:
                raise CheckpointError(f"{file} is a pointer of Git LFS: run 'git lfs pull' in its folder.") from error
        raise CheckpointError(
            f"{file} is truncated, corrupt or no safetensors file ({_brief(error)}); download or copy it again."
        ) from error


def read_json(file: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object.

    Raises:
        CheckpointError: the file is missing, unreadable, larger than `LARGEST_JSON` or no JSON object.
    """
    try:
        if os.path.getsize(file) > LARGEST_JSON:
            raise CheckpointError(f"{file} is larger than {LARGEST_JSON} bytes: that is not a {file.name}.")
        content = codec.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{file.parent} has no {file.name}: pass the folder of a saved model.") from error
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error.strerror or error}.") from error
    except ValueError as error:
        raise CheckpointError(f"{file} is not valid JSON ({_brief(error)}): save or download it again.") from error
    if not isinstance(content, dict):
        raise CheckpointError(
            f"{file} must hold a JSON object, found {type(content).__name__}: save or download it again."
        )
    return content


def _brief(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:200]


SINGLE = "model.safetensors"
SHARDED = "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.bin.index.json")


def read_index(folder: Path) -> dict[str, TensorInfo]:
    """List every tensor of a checkpoint folder, sharded or not, reading headers only.

    Raises:
        CheckpointError: there is no safetensors file, or a file is missing, unsafe to name or broken.
    """
    if (folder / SINGLE).is_file():
        return read_header(folder / SINGLE)
    if (folder / SHARDED).is_file():
        return _read_shards(folder)
    pickles = sorted(file.name for pattern in _PICKLES for file in folder.glob(pattern))
    if pickles:
        raise CheckpointError(pickle_only(str(folder), pickles[0]))
    raise CheckpointError(f"{folder} has no {SINGLE}: pass the folder of a model saved with save_pretrained.")


def pickle_only(source: str, name: str) -> str:
    """Message for a checkpoint without safetensors."""
    return (
        f"{source} holds only pickled weights ({name}), which can run code when opened: where you trust them, load the "
        "model with the library that it is of, and save it with save_pretrained, which writes safetensors."
    )


def _read_shards(folder: Path) -> dict[str, TensorInfo]:
    file = folder / SHARDED
    weight_map = read_json(file).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{file}: weight_map must be a non-empty object; save or download the checkpoint again.")
    shards: dict[str, dict[str, TensorInfo]] = {}
    index: dict[str, TensorInfo] = {}
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or Path(shard).name != shard or not shard.endswith(".safetensors"):
            raise CheckpointError(
                f"{file}: weight_map puts {name} into {shard!r}, which is not a safetensors file of this folder."
            )
        if shard not in shards:
            if not (folder / shard).is_file():
                raise CheckpointError(
                    f"{file} names the shard {shard}, which is missing: download or copy the checkpoint again."
                )
            shards[shard] = read_header(folder / shard)
        if name not in shards[shard]:
            raise CheckpointError(
                f"{file}: weight_map puts {name} into {shard}, which does not hold it: save the checkpoint again."
            )
        index[name] = shards[shard][name]
    return index
