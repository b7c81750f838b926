"""Toy models, compressed, and healings of a second."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankscope.compress import CompressOptions, compress
from rankscope.compress.heal import HealConfig


@pytest.fixture
def teacher(
    tmp_path: Path, write_checkpoint: Callable[..., Path], tiny_config: Callable[..., Any]
) -> Callable[..., Path]:
    """``teacher("chronos-t5", "name", num_layers=1)``: a random model."""

    def write(kind: str, name: str = "teacher", **changes: Any) -> Path:
        return write_checkpoint(tmp_path / name, tiny_config(kind, **changes))

    return write


@pytest.fixture
def student(tmp_path: Path) -> Callable[..., Path]:
    """``student(teacher, "joint")``: the teacher in head widths, or with ``svd`` in factors."""

    def make(teacher: Path, method: str = "svd", name: str = "student", **options: Any) -> Path:
        calibration = {} if method == "svd" else {"calibration": "mixture:8"}
        compress(
            teacher, CompressOptions(attention_ratio=0.4, method=method, **calibration, **options), out=tmp_path / name
        )
        return tmp_path / name

    return make


@pytest.fixture(scope="session")
def short() -> Callable[..., HealConfig]:
    """``short(steps=3)``: a healing that takes a second, with a snapshot after every step."""

    def make(**changes: Any) -> HealConfig:
        if "minutes" not in changes:
            changes = {"steps": 6, **changes}
        return HealConfig(**{"batch_size": 4, "log_steps": 2, "save_seconds": 0.0, **changes})

    return make


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a healing's clock go on by a tenth of a second whenever it is looked at, however busy the machine is."""
    ticks = itertools.count()
    monkeypatch.setattr("rankscope.compress.heal.config.perf_counter", lambda: next(ticks) / 10)
