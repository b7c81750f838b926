"""The bundled models forecast as well as when they were trained: a damaged bundle, or another one, is found."""

from __future__ import annotations

import pytest

from rankscope_eval import Forecasting, evaluate


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "wql", "mase", "within"),
    [("bundled-bolt", 0.658, 0.783, 0.005), ("bundled-2", 0.791, 0.974, 0.005), ("bundled", 0.744, 0.878, 0.05)],
)
def test_scores_are_those_of_the_day_of_training(model: str, wql: float, mase: float, within: float) -> None:
    """Over seasonal naive's on the embedded suite; those of `bundled` are sampled: three standard deviations."""
    report = evaluate([model], "embedded", Forecasting(seed=0), baseline="seasonal-naive")
    row = next(row for row in report.summary if row.model == model and row.benchmark == "all")
    assert row.relative_WQL == pytest.approx(wql, rel=within)
    assert row.relative_MASE == pytest.approx(mase, rel=within)
