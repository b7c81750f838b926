"""Sweeps as `rankscope sweep` leaves them, and figures without pyplot."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankscope.io import codec
from rankscope.measure.sweep import EmbeddingRanks, PointRanks, SweepReport, SweepRow

EPS = (0.1, 0.01)


@pytest.fixture(autouse=True)
def without_pyplot(monkeypatch: pytest.MonkeyPatch) -> None:
    """No figure may need pyplot and its global state: importing it fails here."""
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)


def a_row(name: str, config: dict[str, Any], rank: int) -> SweepRow:
    keys = [repr(eps) for eps in EPS]
    mean = {key: float(rank * (i + 1)) for i, key in enumerate(keys)}
    heads = {key: [[rank - 1, rank + 1]] for key in keys}
    sigma = tuple(float(2.0 * 0.5 ** (j / rank)) for j in range(12))
    ranks = PointRanks(
        100 * rank,
        400 * rank,
        {"all": mean, "encoder.self": {key: value + 1 for key, value in mean.items()}},
        {"encoder.self": {key: [rank] for key in keys}},
        {"encoder.self": heads},
        (EmbeddingRanks("corpus", 40, sigma, dict.fromkeys(keys, rank)),),
    )
    whole = {"family": "chronos-t5", "batch_size": 4, "seed": 0, **config}
    return SweepRow(name, {}, whole, "done", folder=f"points/{name}", parameters=1000, steps=6, ranks=ranks)


@pytest.fixture
def sweep_folder(tmp_path: Path) -> Callable[..., Path]:
    """``sweep_folder([{"model": {"d_model": 16}}, …])``: a folder with ``sweep.json``, ranks 2, 3, … in order."""

    def make(configs: list[dict[str, Any]], state: str = "done") -> Path:
        rows = tuple(a_row(f"p{i}", config, 2 + i) for i, config in enumerate(configs))
        if state != "done":
            rows = tuple(SweepRow(row.point, {}, row.config, state) for row in rows)
        folder = tmp_path / "sweep"
        folder.mkdir()
        document = codec.plain(SweepReport("toy", "", "sweep", EPS, rows))
        (folder / "sweep.json").write_text(json.dumps(document))
        return folder

    return make
