"""Runs with known ranks, as the studies write them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from rankscope.io import codec
from rankscope_lab.encoders.run_spec import Point, RunResult
from rankscope_lab.encoders.run_spec import RunSpec as EncoderSpec
from rankscope_lab.measure import ModelRanks, StreamRanks
from rankscope_lab.measure.record import ranks_of
from rankscope_lab.slt.run_spec import Epoch, Score, WindowCounts
from rankscope_lab.slt.run_spec import RunResult as SltResult
from rankscope_lab.slt.run_spec import RunSpec as SltSpec
from rankscope_lab.tokenizers.vq import VqSettings

EPS = (0.1, 0.05, 0.01)


def flat(rank: float) -> torch.Tensor:
    """Singular values of effective rank about ``rank``: so many equal ones, and one smaller."""
    whole = int(rank)
    return torch.tensor([1.0] * whole + [rank - whole] + [0.0] * (16 - whole))


def model_ranks(stream: list[float], kinds: list[str], between: list[float] | None = None) -> dict:
    """A record of what enters each block, what its halves hand on, and what leaves the last one."""
    places = []
    for layer, kind in enumerate(kinds):
        half = (between or stream)[layer]
        places += [(layer, kind, "input", stream[layer]), (layer, kind, "between", half)]
    places.append((len(kinds) - 1, kinds[-1], "output", stream[-1]))
    streams = tuple(
        StreamRanks("blocks", layer, kind, place, 99, 17, ranks_of(flat(rank), EPS), ranks_of(flat(rank - 1), EPS))
        for layer, kind, place, rank in places
    )
    return codec.plain(ModelRanks(EPS, (), streams))


def write_encoder(
    folder: Path, encoder: str, seed: int, stream: list[float] | None, loss: float = 2.0, stopped: int = 0
) -> Path:
    spec = EncoderSpec(encoder, seed=seed)
    diagnostics = {"ranks": model_ranks(stream, ["attention"] * 3)} if stream else {}
    result = RunResult(spec, (Point(300, 1.9, loss, 0.3),), 10, 5, 1.0, diagnostics=diagnostics, stopped=stopped)
    return written(folder / f"{spec.id}.json", codec.text(result))


def write_slt(folder: Path, model: str, seed: int, stream: list[float], kinds: list[str], **more: list[float]) -> Path:
    spec = SltSpec("ETTh1", model, seed=seed)
    score = Score(0.4, 0.4)
    epoch = Epoch(10, score, score, score, 1.0)
    result = SltResult(spec, (epoch,), 10, 7, WindowCounts(1, 1, 1), ranks=model_ranks(stream, kinds, **more))
    return written(folder / f"{spec.id}.json", codec.text(result))


def write_vq(folder: Path, codes: int, seed: int, rank: float, diverged: bool = False) -> Path:
    document = {
        "schema": "rankscope/lab-vq@1",
        "settings": asdict(VqSettings(codes=codes, seed=seed)),
        "diverged": diverged,
        "test": None if diverged else {"mse": 0.1, "used": 3, "perplexity": 2.0},
        "codebook": None if diverged else codec.plain(ranks_of(flat(rank), EPS)),
        "stream": None if diverged else codec.plain(ranks_of(flat(rank / 2), EPS)),
    }
    return written(folder / f"vq-{codes}-s{seed}" / "vq.json", json.dumps(document))


def written(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.fixture(scope="session")
def made() -> SimpleNamespace:
    """Writers of runs: ``encoder``, ``slt``, ``vq``; ``flat`` makes their spectra."""
    return SimpleNamespace(encoder=write_encoder, slt=write_slt, vq=write_vq, flat=flat)
