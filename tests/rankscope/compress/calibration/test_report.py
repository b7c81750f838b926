"""What a calibration is said to have seen, against what was put in."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from rankscope import open_checkpoint
from rankscope.compress.calibration import CalibrationSet, calibrate, calibration_set, load_calibration, report_on
from rankscope.compress.calibration.report import series_for
from rankscope.errors import DataError
from rankscope.io import codec


def made(n: int) -> CalibrationSet:
    """Series without holes: eight patches of four values."""
    return calibration_set(f"kernelsynth:{n}", context=32, horizon=8)


def test_positions_matrices_and_ranks(bolt_folder: Path) -> None:
    checkpoint = open_checkpoint(bolt_folder)
    found = calibrate(checkpoint, made(20))
    report = report_on(found, checkpoint, checkpoint.sites(), "m.safetensors")
    by_stack = {stream.stack: stream for stream in report.streams}
    assert list(by_stack) == ["encoder", "memory", "decoder"]
    assert {stack: stream.tokens for stack, stream in by_stack.items()} == {
        "encoder": 20 * 9,
        "memory": 20 * 9,
        "decoder": 20,
    }
    assert sorted(name for stream in report.streams for name in stream.matrices) == sorted(
        site.module for site in checkpoint.sites()
    )
    for stream in report.streams:
        values = torch.linalg.eigvalsh(found.streams[stream.name].second).clamp(min=0)
        share = values / values.sum()
        entropy = -sum(float(p) * math.log(float(p)) for p in share if p > 0)
        assert stream.effective_rank == pytest.approx(math.exp(entropy), rel=1e-6)
    assert report.notes == ()
    document = json.loads(codec.text(report))
    assert document["schema"] == "rankscope/calibrate@1"
    assert (document["series"], document["out"], document["decoder"]) == (20, "m.safetensors", "teacher")


def test_a_decoder_of_one_position_says_how_many_series_would_do(bolt_folder: Path) -> None:
    """Matrices of rank 8 (two heads of 4) read one position per series."""
    checkpoint = open_checkpoint(bolt_folder)
    (note,) = report_on(calibrate(checkpoint, made(3)), checkpoint, checkpoint.sites()).notes
    assert note.startswith("decoder: 3 positions in 3 series, fewer than the 8 ranks of decoder.block.0.")
    assert "8 series would do (4 for the heads of method joint)" in note
    assert report_on(calibrate(checkpoint, made(8)), checkpoint, checkpoint.sites()).notes == ()
    assert report_on(calibrate(checkpoint, made(7)), checkpoint, checkpoint.sites()).notes != ()


def test_the_number_of_series_is_the_least_that_suffices() -> None:
    for ranks, tokens, series in ((256, 8, 8), (64, 100, 3), (7, 3, 2), (12, 12, 4)):
        enough = series_for(ranks, tokens, series)
        assert enough * tokens / series >= ranks > (enough - 1) * tokens / series


def test_copies_of_one_series_are_noticed(chronos_t5_folder: Path) -> None:
    checkpoint = open_checkpoint(chronos_t5_folder)
    flat = CalibrationSet("flat", torch.full((6, 32), 3.0), torch.full((6, 8), 3.0))
    report = report_on(calibrate(checkpoint, flat), checkpoint, checkpoint.sites())
    (note,) = [note for note in report.notes if "first layer's input" in note]
    assert "198 positions show 2 of the 16 directions" in note  # one value, and the end of every series
    assert report_on(calibrate(checkpoint, made(6)), checkpoint, checkpoint.sites()).notes == ()


@pytest.mark.parametrize("how", ["shape", "negative"])
def test_sums_that_are_none_are_refused(how: str, bolt_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "moments.safetensors"
    calibrate(open_checkpoint(bolt_folder), made(2), file=file)
    with safe_open(file, "pt") as opened:
        metadata = opened.metadata()
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith(":inside"))
    changes: dict[str, Callable[[Any], Any]] = {
        "shape": lambda c: c[:-1].contiguous(),
        "negative": lambda c: c - 1e6 * torch.eye(len(c), dtype=c.dtype),
    }
    tensors[name] = changes[how](tensors[name])
    save_file(tensors, file, metadata=metadata)
    with pytest.raises(DataError, match="is damaged") as caught:
        load_calibration(file)
    assert "\n" not in str(caught.value)
