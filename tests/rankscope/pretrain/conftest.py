"""Runs of a few seconds, and what they leave behind."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from rankscope.pretrain import ModelShape, PretrainConfig

TINY = ModelShape(
    d_model=16, d_kv=4, d_ff=16, num_layers=1, num_decoder_layers=1, num_heads=2, n_tokens=64, patch_size=8
)


@pytest.fixture(scope="session")
def tiny() -> Callable[..., PretrainConfig]:
    """``tiny("chronos-t5", max_steps=3)``: a run that takes a second."""

    def make(family: str = "chronos-bolt", **changes: Any) -> PretrainConfig:
        base = PretrainConfig(
            family=family,
            model=TINY,
            context=32,
            horizon=8,
            bank_kernels=2,
            bank_draws=3,
            max_steps=6,
            batch_size=4,
            warmup_steps=1,
            save_steps=3,
            log_steps=1,
        )
        return dataclasses.replace(base, **changes)

    return make


@pytest.fixture(scope="session")
def write_config() -> Callable[[Path, PretrainConfig], Path]:
    """``write_config(file, config)``: the YAML that ``rankscope pretrain`` reads."""

    def write(file: Path, config: PretrainConfig) -> Path:
        plain = yaml.safe_load(yaml.safe_dump(_plain(config.to_dict())))
        file.write_text(yaml.safe_dump({name: value for name, value in plain.items() if value is not None}))
        return file

    return write


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


@pytest.fixture(scope="session")
def curve() -> Callable[..., list[float]]:
    """``curve(folder)``: the losses; ``curve(folder, "step")`` another column."""

    def read(folder: Path, column: str = "loss", file: str = "loss.csv") -> list[float]:
        with (folder / file).open() as handle:
            return [float(row[column]) for row in csv.DictReader(handle)]

    return read


@pytest.fixture(scope="session")
def same_weights() -> Callable[[Path, Path], bool]:
    """``same_weights(folder, other)``: bit for bit, names included."""

    def same(folder: Path, other: Path) -> bool:
        one, two = (load_file(at / "model.safetensors") for at in (folder, other))
        return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)

    return same
