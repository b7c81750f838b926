"""The table of the runtime compares with the baseline at its best batch, and not only at the same one."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def row(label: str, batch: int, turns: list[float], peak: int, **more: Any) -> dict[str, Any]:
    return {"label": label, "batch": batch, "turns": turns, "seconds": {"median": turns[1]}, "peak_bytes": peak, **more}


def test_times_and_memory_over_the_best_of_the_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    script = importlib.import_module("runtime")
    stock, fast = "t5-tiny:stock:float32", "t5-tiny:fast:float32"
    rows = [
        row(stock, 1, [1.0, 1.0, 2.0], 200),
        row(stock, 8, [4.0, 4.0, 16.0], 1000),
        row(fast, 8, [2.0, 1.0, 2.0], 400),
    ]
    alone, batched, found = script.against_best({"rows": rows}, "tiny")
    assert alone["seconds_per_series"] == {"median": 2.0, "min": 1.0, "max": 2.0}
    assert batched["baseline_batch"] == found["baseline_batch"] == 8
    assert found["seconds_per_series"] == {"median": 0.25, "min": 0.125, "max": 0.5}
    assert (found["peak_over_same_batch"], found["peak_over_least"]) == (0.4, 2.0)
