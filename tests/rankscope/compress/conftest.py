"""Random models and their moments, made once for a file of tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from rankscope import open_checkpoint
from rankscope.checkpoints import Checkpoint
from rankscope.compress.calibration import Calibration, CalibrationSet, calibrate, calibration_set

HORIZON = 8


def texts(n: int = 24) -> CalibrationSet:
    tokens = torch.randint(2, 60, (n, 20 + HORIZON), generator=torch.Generator().manual_seed(1)).float()
    return CalibrationSet("texts", tokens[:, :20], tokens[:, 20:])


def series_for(kind: str) -> CalibrationSet:
    return texts() if kind == "t5" else calibration_set("kernelsynth:24", context=32, horizon=HORIZON)


@pytest.fixture(scope="module")
def toys(
    tmp_path_factory: pytest.TempPathFactory, write_checkpoint: Any, tiny_config: Any
) -> Callable[[str], tuple[Checkpoint, Calibration]]:
    """``toys("chronos-t5")``: a random model and its moments, made once."""
    made: dict[str, tuple[Checkpoint, Calibration]] = {}

    def get(kind: str) -> tuple[Checkpoint, Calibration]:
        if kind not in made:
            config = tiny_config(kind, num_decoder_layers=2)
            checkpoint = open_checkpoint(write_checkpoint(tmp_path_factory.mktemp(kind) / kind, config))
            watched = tuple(site for site in checkpoint.sites(["all"]) if site.role != "embedding")
            made[kind] = checkpoint, calibrate(checkpoint, series_for(kind), sites=watched)
        return made[kind]

    return get
