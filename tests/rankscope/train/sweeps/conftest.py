"""A sweep so small that a point trains in about a second."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from rankscope.train.sweeps import SweepSpec, read_sweep

BASE: dict[str, Any] = {
    "family": "chronos-t5",
    "model": {
        "d_model": 16,
        "d_kv": 4,
        "d_ff": 16,
        "num_layers": 1,
        "num_decoder_layers": 1,
        "num_heads": 2,
        "n_tokens": 64,
    },
    "context": 32,
    "horizon": 8,
    "bank_kernels": 0,
    "max_steps": 6,
    "batch_size": 4,
    "warmup_steps": 1,
    "save_steps": 2,
    "log_steps": 1,
}
POINTS = {"small": {"model.d_model": 8}, "large": {}}


@pytest.fixture(scope="session")
def write_sweep() -> Callable[..., SweepSpec]:
    """``write_sweep(folder, points={...}, eps=[0.1], base={"max_steps": 9})``: a sweep read from YAML, named toy."""

    def make(folder: Path, base: dict[str, Any] | None = None, **fields: Any) -> SweepSpec:
        if "axes" not in fields:
            fields.setdefault("points", POINTS)
        file = folder / "toy.yaml"
        file.write_text(yaml.safe_dump({"base": BASE | (base or {}), "eps": [0.1, 0.01], **fields}, sort_keys=False))
        return read_sweep(file)

    return make


@pytest.fixture
def sweep(write_sweep: Callable[..., SweepSpec], tmp_path: Path) -> Callable[..., SweepSpec]:
    """``sweep(points={...})``: the same in the test's own folder."""
    return partial(write_sweep, tmp_path)
