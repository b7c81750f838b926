"""Other number formats and nothing cut: storage or dtype alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rankscope import open_checkpoint
from rankscope.compress import CompressOptions, compress
from rankscope.errors import DataError, OptionError


def test_a_given_storage_needs_no_size(chronos_t5_folder: Path, tmp_path: Path) -> None:
    told: list[str] = []
    report = compress(
        chronos_t5_folder,
        CompressOptions(storage="int8"),
        out=tmp_path / "int8",
        progress=lambda done, total, what: told.append(what),
    )
    assert (report.ratio, report.asked, report.recast) == (1.0, {}, True)
    assert set(told) == {"factors"}  # nothing was measured


def test_a_given_dtype_needs_no_size(chronos_t5_folder: Path, tmp_path: Path) -> None:
    source = open_checkpoint(chronos_t5_folder)
    compress(source, CompressOptions(dtype="bfloat16"), out=tmp_path / "half")
    half = open_checkpoint(tmp_path / "half")
    assert {half.tensor(name).dtype for name in half.index} == {torch.bfloat16}
    assert all(torch.equal(half.tensor(name), source.tensor(name).bfloat16()) for name in half.index)
    with pytest.raises(OptionError, match="number formats alone, without a method"):
        compress(source, CompressOptions(dtype="bfloat16", method="joint"), out=tmp_path / "x")


def test_what_float16_cannot_hold_is_refused(chronos_t5_folder: Path, write_checkpoint: Any, tmp_path: Path) -> None:
    source = open_checkpoint(chronos_t5_folder)
    tensors = {name: source.tensor(name) for name in source.index}
    name = source.sites()[0].name
    tensors[name] = tensors[name] * 1e6
    large = write_checkpoint(tmp_path / "large", source.config, tensors)
    with pytest.raises(DataError, match=f"{name} has values that float16 cannot hold: write bfloat16"):
        compress(large, CompressOptions(dtype="float16"), out=tmp_path / "half")
    assert not (tmp_path / "half").exists()
