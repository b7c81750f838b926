"""The safetensors format, read with plain file reads, and which files of a folder hold which tensors.

Mapped pages count as resident memory until the kernel takes them back, so a mapped reader seems to hold
the whole file; plain reads hold one tensor.
"""

from __future__ import annotations

import io
import json
import os
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rankscope.errors import CheckpointError

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
_LARGEST_HEADER = 100_000_000  # the format's own limit
_AGAIN = "download or copy it again."


@dataclass(frozen=True)
class TensorInfo:
    """Where one tensor is stored.

    Attributes:
        file: safetensors file that holds it.
        shape: its axes.
        dtype: its number format.
        start: first byte in the file.
    """

    file: Path
    shape: tuple[int, ...]
    dtype: torch.dtype
    start: int

    @property
    def bytes(self) -> int:
        """Stored size in bytes."""
        return prod(self.shape) * self.dtype.itemsize


def read_header(file: Path) -> dict[str, TensorInfo]:
    """List the tensors of a safetensors file after checking that its header and its size agree.

    Raises:
        CheckpointError: the file cannot be read, or is truncated, corrupt or no safetensors file.
    """
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            prefix = stream.read(8)
            if len(prefix) < 8:
                raise CheckpointError(f"{file} is truncated: {size} bytes hold no safetensors header; {_AGAIN}")
            length = struct.unpack("<Q", prefix)[0]
            if length > min(size - 8, _LARGEST_HEADER):
                raise CheckpointError(
                    f"{file} is truncated or no safetensors file: its header claims {length} bytes, the "
                    f"file has {size}; {_AGAIN}"
                )
            raw = stream.read(length)
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error.strerror or error}.") from error
    try:
        header = json.loads(raw.decode("utf-8"))
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        tensors = {name: _entry(file, 8 + length, entry) for name, entry in entries.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"{file} is corrupt: its header is not a safetensors header ({_brief(error)}); {_AGAIN}"
        ) from error
    _check_extent(file, tensors, 8 + length, size)
    return tensors


def _entry(file: Path, base: int, entry: dict[str, Any]) -> TensorInfo:
    if entry["dtype"] not in DTYPES:
        raise ValueError(f"number format {entry['dtype']!r} is not one of {', '.join(DTYPES)}")
    shape = tuple(entry["shape"])
    start, end = entry["data_offsets"]
    if not all(type(value) is int and value >= 0 for value in (*shape, start, end)):
        raise ValueError(f"shape {entry['shape']!r} or offsets {entry['data_offsets']!r} are no whole numbers ≥ 0")
    info = TensorInfo(file, shape, DTYPES[entry["dtype"]], base + start)
    if info.bytes != end - start:
        raise ValueError(f"shape {list(shape)} takes {info.bytes} bytes, offsets give {end - start}")
    return info


def _check_extent(file: Path, tensors: dict[str, TensorInfo], base: int, size: int) -> None:
    """Refuse a file whose tensors overlap, leave holes, or do not end where the file ends."""
    position = base
    for name, info in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].bytes)):
        if info.start != position:
            raise CheckpointError(
                f"{file} is corrupt: tensor {name} begins at byte {info.start}, byte {position} was expected; {_AGAIN}"
            )
        position += info.bytes
    if position != size:
        state = "truncated" if position > size else "corrupt"
        raise CheckpointError(f"{file} is {state}: its header claims {position} bytes, the file has {size}; {_AGAIN}")


def read_tensor(info: TensorInfo) -> Tensor:
    """Read one tensor into memory of its own.

    Raises:
        CheckpointError: the file cannot be read or ends before the tensor does.
    """
    raw = torch.empty(info.bytes, dtype=torch.uint8)
    try:
        # Unbuffered, so that the bytes go straight into the tensor.
        with info.file.open("rb", buffering=0) as stream:
            stream.seek(info.start)
            filled = _fill(stream, raw.numpy().data)
    except OSError as error:
        raise CheckpointError(f"cannot read {info.file}: {error.strerror or error}.") from error
    if filled < info.bytes:
        raise CheckpointError(f"{info.file} is truncated: it became shorter while it was read; {_AGAIN}")
    return raw.view(info.dtype).view(info.shape)


def _fill(stream: io.FileIO, buffer: memoryview) -> int:
    filled = 0
    while filled < len(buffer):
        count = stream.readinto(buffer[filled:])
        if not count:
            break
        filled += count
    return filled


def read_json(file: Path, limit: int = 64 * 2**20) -> dict[str, Any]:
    """Read a JSON file that holds an object.

    Raises:
        CheckpointError: the file is missing, unreadable, larger than ``limit`` bytes or no JSON object.
    """
    try:
        if os.path.getsize(file) > limit:
            raise CheckpointError(f"{file} is larger than {limit} bytes: that is no {file.name}.")
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{file.parent} has no {file.name}: pass the folder of a saved model.") from error
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
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
        f"{source} holds only pickled weights ({name}), which can run code when opened: convert them where "
        "you trust them, e.g. "
        f"transformers.T5ForConditionalGeneration.from_pretrained({source!r}).save_pretrained('converted/')."
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
                f"{file}: weight_map puts {name} into {shard!r}, which is no safetensors file of this folder."
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
