"""Budgets of parameters, bytes and cache: never exceeded, and counted as what is written takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rankscope import open_checkpoint
from rankscope.checkpoints import Checkpoint
from rankscope.compress import Budget, CompressOptions, compress
from rankscope.compress.calibration import Calibration

Toys = Callable[[str], tuple[Checkpoint, Calibration]]


UNITS = {
    "parameters": lambda checkpoint: checkpoint.parameters,
    "bytes": lambda checkpoint: checkpoint.bytes,
    "cache-bytes": lambda checkpoint: filled_cache(checkpoint),
}


def filled_cache(checkpoint: Checkpoint) -> int:
    """Bytes of keys and values after a whole forecast of one series and one path: 32 values, and 8 more."""
    module = checkpoint.module(next(iter(checkpoint.index.values())).dtype)
    tokens = torch.randint(2, 62, (1, 33), generator=torch.Generator().manual_seed(0))
    made = module.generate(
        input_ids=tokens,
        attention_mask=torch.ones_like(tokens),
        min_new_tokens=8,
        max_new_tokens=8,
        return_dict_in_generate=True,
    )
    cache = made.past_key_values
    layers = [*cache.self_attention_cache.layers, *cache.cross_attention_cache.layers]
    return sum(tensor.nbytes for layer in layers for tensor in (layer.keys, layer.values))


@pytest.mark.slow
@pytest.mark.parametrize("kind", UNITS)
@pytest.mark.parametrize("sites", ["attention", "decoder,q,k"])
def test_budgets_are_never_exceeded_and_used_to_within_one_rank(
    kind: str, sites: str, toys: Toys, tmp_path: Path
) -> None:
    """Counted in what was written: numbers, bytes, and the cache of a forecast that was run."""
    source, moments = toys("chronos-t5")
    measure = UNITS[kind]
    whole = measure(source)
    report = compress(
        source, CompressOptions(ratio=0.26, method="joint", calibration=moments, sites=sites), out=tmp_path / "least"
    )
    least = measure(open_checkpoint(tmp_path / "least"))
    rank = {"parameters": 32, "bytes": 128, "cache-bytes": 33 * 4}[kind]
    for index, share in enumerate((0.1, 0.5, 0.9)):
        limit = round(least + share * (whole - least))
        out = tmp_path / str(index)
        report = compress(
            source,
            CompressOptions(budget=Budget(kind, limit), method="joint", calibration=moments, sites=sites),
            out=out,
        )
        used = measure(open_checkpoint(out))
        assert limit - rank < used <= limit
        assert report.target_ratio is None
    if kind == "bytes":
        assert used == report.bytes["after"]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_bytes_are_counted_in_the_format_that_is_written(dtype: str | None, toys: Toys, tmp_path: Path) -> None:
    source, moments = toys("chronos-bolt")
    limit = round(source.bytes * (0.85 if dtype is None else 0.42))
    for method in ("joint", "whitened", "svd"):
        compress(
            source,
            CompressOptions(budget=Budget("bytes", limit), method=method, calibration=moments, dtype=dtype),
            out=tmp_path / method,
        )
        used = open_checkpoint(tmp_path / method).bytes
        assert limit - 4 * 32 < used <= limit
        assert used < (tmp_path / method / "model.safetensors").stat().st_size


def test_tied_copies_count_in_bytes(toys: Toys, tmp_path: Path, write_checkpoint: Any) -> None:
    """A table stored twice is written twice: a budget of bytes has to know."""
    source, _ = toys("chronos-t5")
    tensors = {name: source.tensor(name) for name in source.index}
    tensors["encoder.embed_tokens.weight"] = tensors["shared.weight"].clone()
    double = open_checkpoint(write_checkpoint(tmp_path / "double", source.config, tensors))
    assert double.parameters == source.parameters
    limit = round(double.bytes * 0.8)
    compress(double, CompressOptions(budget=Budget("bytes", limit)), out=tmp_path / "small")
    assert limit - 4 * 32 < open_checkpoint(tmp_path / "small").bytes <= limit
