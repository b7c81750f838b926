"""Large tensors in files, and memory that is given back."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rankscope.engine.memory import LEAST, Spool, give_back, on_disk, unload

linux = pytest.mark.skipif(sys.platform != "linux", reason="other systems keep tensors in memory")


def resident(kind: str) -> int:
    """Bytes of this process that are resident, of files or of memory that no file backs."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"Rss{kind}:"))


def backed_by_file(tensor: Tensor) -> bool:
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(word, 16) for word in line.split()[0].split("-"))
        if begin <= tensor.data_ptr() < end:
            return line.endswith("(deleted)")
    raise AssertionError("no mapping holds the tensor")


def large(seed: int = 0) -> Tensor:
    return torch.randn(1500, 1500, generator=torch.Generator().manual_seed(seed))


@linux
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_large_tensor_is_mapped_from_a_file_that_has_no_name(dtype: torch.dtype, tmp_path: Path, monkeypatch: Any):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tensor = large().to(dtype).mT  # not contiguous
    found = on_disk(tensor)
    assert backed_by_file(found)
    assert not backed_by_file(tensor)
    assert found.dtype == dtype
    assert torch.equal(found, tensor)
    assert not list(tmp_path.iterdir())


def test_a_small_tensor_stays_where_it_is() -> None:
    tensor = torch.zeros(LEAST // 4 - 1)
    assert on_disk(tensor) is tensor


@linux
def test_a_full_disk_leaves_the_tensor_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    tensor = large()
    assert on_disk(tensor) is tensor


@linux
def test_a_file_that_cannot_be_mapped_leaves_the_tensor_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise RuntimeError("unable to mmap")

    monkeypatch.setattr(torch, "from_file", refused)
    tensor = large()
    assert on_disk(tensor) is tensor


@linux
def test_what_is_given_back_is_read_again() -> None:
    tensors = [on_disk(large(seed)) for seed in range(8)]
    assert all(tensor.sum().isfinite() for tensor in tensors)
    before, size = resident("File"), sum(tensor.nbytes for tensor in tensors)
    give_back()
    assert before - resident("File") > 0.9 * size
    assert all(torch.equal(tensor, large(seed)) for seed, tensor in enumerate(tensors))


@linux
def test_one_is_unloaded_and_others_are_left_alone() -> None:
    tensor, other = on_disk(large(1)), large(2)
    assert tensor.sum().isfinite()
    before = resident("File")
    unload(tensor, other)
    assert before - resident("File") > 0.9 * tensor.nbytes
    assert torch.equal(tensor, large(1))
    assert torch.equal(other, large(2))


@linux
def test_what_was_changed_in_a_file_is_kept() -> None:
    tensor = on_disk(large())
    tensor += 1
    give_back()
    assert torch.equal(tensor, large() + 1)


@linux
def test_tensors_that_are_gone_are_not_given_back_again() -> None:
    on_disk(large())  # its addresses are free now, and may be those of the next one
    anonymous = [large(seed) for seed in range(4)]
    give_back()
    assert all(torch.equal(tensor, large(seed)) for seed, tensor in enumerate(anonymous))


def test_a_spool_returns_what_it_was_given_in_order() -> None:
    given = [torch.full((1 + step % 3, 2**16), float(step)) for step in range(40)]
    spool = Spool()
    for tensor in given:
        spool.append(tensor)
    for _ in range(2):
        found = list(spool)
        assert len(found) == len(given)
        assert all(torch.equal(one, other) for one, other in zip(found, given, strict=True))


@linux
def test_a_spool_holds_little_in_memory() -> None:
    give_back()
    before, spool = resident("Anon"), Spool()
    for step in range(64):
        spool.append(torch.full((1, 2**19), float(step)))  # 2 MiB each
    give_back()
    assert resident("Anon") - before < 8 * LEAST
