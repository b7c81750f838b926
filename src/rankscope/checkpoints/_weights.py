"""Which safetensors files of a folder hold which tensors."""

from __future__ import annotations

from pathlib import Path

from rankscope.checkpoints._safetensors import TensorInfo, read_header, read_json
from rankscope.errors import CheckpointError

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
