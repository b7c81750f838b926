"""Safetensors files written tensor by tensor, so that a model is never whole in memory, and their number formats."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rankscope.checkpoints import Checkpoint
from rankscope.checkpoints.sources import COMPANIONS
from rankscope.checkpoints.tensors import DTYPES
from rankscope.choices import Storage
from rankscope.compress.report import CompressReport
from rankscope.engine import Progress, silent
from rankscope.errors import DataError
from rankscope.families import Layout
from rankscope.families.weight_layout import linear_layers, scale_name
from rankscope.io import codec
from rankscope.numerics.parallel import parallel_map
from rankscope.numerics.quantise import SCALE_DTYPE, quantise

SHARD_BYTES = 5 * 1000**3
"""Largest file, the limit that ``save_pretrained`` keeps too; models below it are one file."""

REPORT = "compress.json"
"""File of a written folder that holds its report."""
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and number format of a tensor that is yet to be written."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        """Stored size in bytes."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Job:
    """Tensors that are made together.

    Attributes:
        made: name, shape and number format of each, as it comes.
        make: makes them of what ``read`` returns.
        read: reads what they are made of, one job after the other.
    """

    made: tuple[TensorSpec, ...]
    make: Callable[[Any], Mapping[str, Tensor]]
    read: Callable[[], Any] = lambda: None


def copied(source: Checkpoint, name: str, new: str | None = None) -> Job:
    """A tensor of a checkpoint as it is, under its own name or a new one."""
    info, kept = source.index[name], new or name
    return Job((TensorSpec(kept, info.shape, info.dtype),), lambda tensor: {kept: tensor}, lambda: source.tensor(name))


Encoding = Callable[[str, tuple[int, ...], torch.dtype], tuple[TensorSpec, ...]]
"""From the name and shape of a tensor and the format that it has to what is written of it: the tensor itself, or its
whole numbers and then their scales."""


def encoding_of(
    source: Checkpoint, layouts: Mapping[str, Layout], storage: Storage, dtype: torch.dtype | None
) -> Encoding:
    """Number formats of a folder that is to be written.

    Args:
        source: the checkpoint.
        layouts: of the linear layers in the folder.
        storage: ``int8`` makes their weights whole numbers with a scale per row.
        dtype: format of everything else, None where each tensor keeps its own.
    """
    layers = linear_layers(source.sites(["all"]), layouts) if storage == "int8" else ()
    rounded = {f"{layer}.weight" for layer in layers}

    def specs(name: str, shape: tuple[int, ...], stored: torch.dtype) -> tuple[TensorSpec, ...]:
        if name in rounded:
            scale = TensorSpec(scale_name(name), shape[:1], SCALE_DTYPE)
            return TensorSpec(name, shape, torch.int8), scale
        kept = stored if stored.is_floating_point else source.dtype  # whole numbers that are to be so no more
        return (TensorSpec(name, shape, dtype or kept),)

    return specs


def encoded(tensors: Mapping[str, Tensor], specs: Sequence[TensorSpec]) -> list[Tensor]:
    """The tensors that ``specs`` announce, in that order.

    Raises:
        DataError: a row of a weight cannot be rounded, because it is not finite, or is out of float16's range.
    """
    found: list[Tensor] = []
    for spec in specs:
        if spec.dtype == torch.int8:
            rounded = quantise(tensors[spec.name], spec.name)
            found += [rounded.values, rounded.scale]
        elif spec.name in tensors:
            found.append(_cast(tensors[spec.name], spec))
    return found


def _cast(tensor: Tensor, spec: TensorSpec) -> Tensor:
    kept = tensor.to(spec.dtype).contiguous()
    if spec.dtype == torch.float16 and not kept.isfinite().all() and tensor.isfinite().all():
        raise DataError(f"{spec.name} has values that float16 cannot hold: write bfloat16 (--dtype bfloat16).")
    return kept


def write_jobs(
    folder: Path, jobs: Sequence[Job], encoding: Encoding, workers: int | None = None, progress: Progress = silent
) -> int:
    """Write the tensors of all jobs as `write_weights` does; return their bytes.

    Args:
        folder: an existing folder.
        jobs: in any order.
        encoding: number formats of what is written.
        workers: jobs that are made at the same time.
        progress: called with (done, total, what).
    """
    pairs = [
        (job, tuple(spec for one in job.made for spec in encoding(one.name, one.shape, one.dtype))) for job in jobs
    ]
    pairs.sort(key=lambda pair: (-pair[1][0].dtype.itemsize, pair[1][0].name))

    def work(item: tuple[tuple[Job, tuple[TensorSpec, ...]], Any]) -> list[Tensor]:
        (job, specs), stored = item
        return encoded(job.make(stored), specs)

    def tensors() -> Iterator[tuple[str, Tensor]]:
        results = parallel_map(work, ((pair, pair[0].read()) for pair in pairs), workers)
        for done, ((_, specs), found) in enumerate(zip(pairs, results, strict=True), start=1):
            yield from ((spec.name, tensor) for spec, tensor in zip(specs, found, strict=True))
            progress(done, len(pairs), "factors")

    flat = [spec for _, specs in pairs for spec in specs]
    write_weights(folder, flat, tensors())
    return sum(spec.bytes for spec in flat)


def write_weights(
    folder: Path,
    specs: Sequence[TensorSpec],
    tensors: Iterable[tuple[str, Tensor]],
) -> None:
    """Write ``model.safetensors``, or shards of at most `SHARD_BYTES` and their index, into ``folder``.

    Args:
        folder: an existing folder.
        specs: every tensor, in the order in which ``tensors`` yields them. In a file the widest numbers come first,
            which keeps every tensor aligned for readers that map it.
        tensors: names and values; each is written and dropped before the next is asked for.
    """
    shards = _split(specs, SHARD_BYTES)
    stream = iter(tensors)
    if len(shards) == 1:
        _write_file(folder / "model.safetensors", shards[0], stream)
        _finish(stream)
        return
    names = [f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))]
    for name, shard in zip(names, shards, strict=True):
        _write_file(folder / name, shard, stream)
    _finish(stream)
    weight_map = {spec.name: name for name, shard in zip(names, shards, strict=True) for spec in shard}
    index = {"metadata": {"total_size": sum(spec.bytes for spec in specs)}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def finish_folder(
    folder: Path,
    source: Checkpoint,
    config: dict[str, Any],
    report: CompressReport,
    dtype: torch.dtype | None,
    storage: Storage,
) -> None:
    """Write what goes with the weights, and the report.

    Args:
        folder: where the weights are.
        source: the checkpoint that was compressed.
        config: that of the new one, but for its number format.
        report: of the compression.
        dtype: format of the written weights, None where each kept its own.
        storage: numbers of the linear layers.
    """
    write_companions(folder, source, config, dtype, storage)
    codec.write(folder / REPORT, report, indent=2)


def write_companions(
    folder: Path, source: Checkpoint, config: dict[str, Any], dtype: torch.dtype | None, storage: Storage
) -> None:
    """Write what a model is loaded with beside its weights: config, the source's generation config and tokenizer."""
    named = [key for key in ("torch_dtype", "dtype") if key in config]
    if dtype is None and storage == "int8" and not named:
        dtype = source.dtype  # or loaders would take that of the first scales for the model's
    if dtype is not None:
        config = {**config, **dict.fromkeys(named or ["torch_dtype"], str(dtype).removeprefix("torch."))}
    codec.write(folder / "config.json", config, indent=2)
    for name in COMPANIONS:
        if (source.folder / name).is_file():
            shutil.copyfile(source.folder / name, folder / name)


def _finish(stream: Iterator[tuple[str, Tensor]]) -> None:
    """Run the producer to its end: it may have something to say after its last tensor."""
    if next(stream, None) is not None:
        raise AssertionError("more tensors came than were announced")


def _split(specs: Sequence[TensorSpec], limit: int) -> list[list[TensorSpec]]:
    shards: list[list[TensorSpec]] = [[]]
    size = 0
    for spec in specs:
        if shards[-1] and size + spec.bytes > limit:
            shards.append([])
            size = 0
        shards[-1].append(spec)
        size += spec.bytes
    return shards


def _write_file(file: Path, specs: Sequence[TensorSpec], tensors: Iterator[tuple[str, Tensor]]) -> None:
    with file.open("wb") as out:
        starts = _starts(specs)
        header = _header(specs, starts)
        out.write(header)
        for spec in specs:
            name, tensor = next(tensors)
            if (name, tuple(tensor.shape), tensor.dtype) != (spec.name, spec.shape, spec.dtype):
                raise AssertionError(f"{name} {tuple(tensor.shape)} {tensor.dtype} where {spec} was announced")
            out.seek(len(header) + starts[spec.name])
            out.write(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)


def _starts(specs: Sequence[TensorSpec]) -> dict[str, int]:
    """First byte of every tensor after the header."""
    starts = {}
    position = 0
    for spec in sorted(specs, key=lambda spec: -spec.dtype.itemsize):
        starts[spec.name] = position
        position += spec.bytes
    return starts


def _header(specs: Sequence[TensorSpec], starts: Mapping[str, int]) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    for spec in sorted(specs, key=lambda spec: starts[spec.name]):
        position = starts[spec.name]
        entries[spec.name] = {
            "dtype": _NAMES[spec.dtype],
            "shape": list(spec.shape),
            "data_offsets": [position, position + spec.bytes],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text
