"""Untrained networks of every layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rankscope import open_checkpoint
from rankscope.compress import CompressOptions, compress
from rankscope.train import ModelShape, PretrainConfig
from rankscope.train.models import new_model
from rankscope.train.rank_schedule import RankDesign
from rankscope_eval.bench import Case
from rankscope_eval.bench.counts import read_network

SHAPE = ModelShape(
    d_model=24, d_kv=6, d_ff=40, num_layers=2, num_decoder_layers=2, num_heads=4, n_tokens=64, patch_size=4,
    initializer_factor=1.0, start="broad",
)  # fmt: skip
DESIGNS = {
    "dense": None,
    "head-width": RankDesign(2, 0.8),
    "factored per head": RankDesign(2, 0.4, layout="factored"),
    "factored": RankDesign(9, 0.4, layout="factored", sketch="shared", mlp=True),
    "latents": RankDesign(3, 0.4, layout="factored", sketch="shared", mlp=True),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``folder("chronos-t5", "head-width")``: an untrained network of that layout, saved once."""
    root = tmp_path_factory.mktemp("bench")

    def saved(family: str, design: str = "dense", gated: bool = False) -> Path:
        target = root / f"{family} {design} {gated}"
        if not target.exists():
            torch.manual_seed(0)
            shape = replace(SHAPE, feed_forward_proj="gated-gelu") if gated else SHAPE
            made = PretrainConfig(family=family, model=shape, low_rank=DESIGNS[design], context=32, horizon=8)
            new_model(made).save_pretrained(target)
        return target

    return saved


@pytest.fixture(scope="module")
def joined(folder: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``joined("chronos-t5")``: heads of unequal width, in the format that is compressed to."""
    root = tmp_path_factory.mktemp("joined")

    def saved(family: str) -> Path:
        if not (root / family).exists():
            options: dict[str, Any] = {"method": "joint", "allocation": "energy", "calibration": "mixture:16"}
            compress(folder(family), CompressOptions(attention_ratio=0.5, **options), out=root / family)
        return root / family

    return saved


@pytest.fixture
def work_of() -> Callable[..., tuple[Any, Case]]:
    """``work_of(folder, batch=2)``: the layers of a checkpoint, and a forecast of it."""

    def read(path: Path, **sizes: Any) -> tuple[Any, Case]:
        network = read_network(open_checkpoint(path), 4)
        assert network is not None
        ranks = [one.cross.key_rank for one in network.decoder if one.cross is not None]
        assert all(ranks) is (str(path).endswith("chronos-t5 latents False"))
        return network, Case(str(path), **{"runtime": "fast", "num_samples": 3, "horizon": 5, "context": 20, **sizes})

    return read
