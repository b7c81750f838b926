"""Series as users have them, and stock and fast pipelines of the same folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rankscope.compress import CompressOptions, compress
from rankscope.forecast.fast import make_fast
from rankscope.forecast.pipeline import load_pipeline


@pytest.fixture(scope="session")
def uneven() -> Callable[..., list[Tensor]]:
    """``uneven(n, longest)``: series of lengths 1 to longest, levels and seasons apart, one in three with holes."""

    def make(n: int, longest: int, seed: int = 0) -> list[Tensor]:
        random = torch.Generator().manual_seed(seed)
        made = []
        for number in range(n):
            length = 1 + int(torch.randint(longest, (1,), generator=random))
            wave = torch.sin(torch.arange(length) * (0.1 + number % 7))
            series = wave + torch.randn(length, generator=random) * 0.3 + number % 5
            if number % 3 == 0:
                series[torch.rand(length, generator=random) < 0.3] = torch.nan
            made.append(series)
        made[-1][:] = torch.nan
        return made

    return make


@pytest.fixture
def t5_folder(tmp_path: Path, write_checkpoint: Callable[..., Path], tiny_config: Callable[..., Any]) -> Path:
    """A random Chronos-T5; transformers' ``generate`` fails where the decoder is deeper than the encoder."""
    return write_checkpoint(tmp_path / "chronos-t5", tiny_config("chronos-t5", num_decoder_layers=2))


@pytest.fixture
def compressed(tmp_path: Path) -> Callable[..., Path]:
    """``compressed(folder, layout)``: a folder as it is (dense), factored, of unequal head widths, or both."""

    def make(folder: Path, layout: str) -> Path:
        options: dict[str, dict[str, Any]] = {
            "factored": {"ratio": 0.5, "method": "svd"},
            "thin": {"ratio": 0.3, "method": "svd", "allocation": "uniform-ratio"},
            "head-width": {"ratio": 0.5, "method": "joint", "allocation": "energy", "calibration": "mixture:16"},
            "int8": {"ratio": 0.5, "method": "svd", "storage": "int8"},
        }
        if layout == "dense":
            return folder
        out = tmp_path / layout
        if layout == "twice":
            compress(folder, CompressOptions(**options["head-width"]), out=tmp_path / "once")
            compress(
                tmp_path / "once",
                CompressOptions(attention_ratio=0.8, method="svd", allocation="uniform-ratio"),
                out=out,
            )
            return out
        compress(folder, CompressOptions(**options[layout]), out=out)
        return out

    return make


@pytest.fixture
def both() -> Callable[..., tuple[Any, Any]]:
    """``both(folder, **options)``: the stock pipeline and the fast one."""

    def make(folder: Path, **options: Any) -> tuple[Any, Any]:
        return load_pipeline(folder, **options), make_fast(load_pipeline(folder, **options))

    return make
