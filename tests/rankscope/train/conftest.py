"""Runs of a few seconds, and what they leave behind."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from rankscope.io import codec
from rankscope.train import PretrainConfig


@pytest.fixture(scope="session")
def write_config() -> Callable[[Path, PretrainConfig], Path]:
    """``write_config(file, config)``: the YAML that ``rankscope pretrain`` reads."""

    def write(file: Path, config: PretrainConfig) -> Path:
        file.write_text(
            yaml.safe_dump({name: value for name, value in codec.plain(config).items() if value is not None})
        )
        return file

    return write


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
