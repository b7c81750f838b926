"""Comparisons on parts of the data: what a slice holds is what an evaluation of it alone says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rankscope_eval import evaluate
from rankscope_eval.report import EvalReport, Slice
from rankscope_eval.suites import Suite, Task

HORIZON = 8


def write(folder: Path, name: str, targets: list[np.ndarray], freq: str) -> Task:
    frame = pd.DataFrame(
        {"item_id": [f"s{i}" for i in range(len(targets))], "start": "2020-01-01", "freq": freq, "target": targets}
    )
    frame.to_parquet(folder / f"{name}.parquet")
    return Task(name, HORIZON, -HORIZON, benchmark="b")


def make(seed: int, count: int, length: int, zeros: float = 0.0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(20, 4, length).cumsum() * (rng.random(length) >= zeros) for _ in range(count)]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    """Short and long series, daily and hourly, some of them intermittent."""
    folder = tmp_path_factory.mktemp("slices")
    mixed = [*make(0, 4, 60), *make(1, 3, 300), *make(2, 5, 300, zeros=0.5)]
    return Suite("s", (write(folder, "mixed", mixed, "D"), write(folder, "hourly", make(3, 4, 300), "h")), folder)


@pytest.fixture(scope="module")
def report(suite: Suite) -> EvalReport:
    return evaluate(["naive"], suite)


def part(report: EvalReport, by: str, name: str) -> Slice:
    return next(one for one in report.slices if (one.by, one.part) == (by, name))


def ratios(suite: Suite, tmp_path: Path, **targets: list[np.ndarray]) -> tuple[float, float]:
    tasks = tuple(write(tmp_path, name, some, "h" if name == "hourly" else "D") for name, some in targets.items())
    (whole,) = evaluate(["naive"], Suite("part", tasks, tmp_path)).summary
    return whole.relative_WQL, whole.relative_MASE


def test_a_slice_is_an_evaluation_of_its_series_alone(suite: Suite, report: EvalReport, tmp_path: Path) -> None:
    expected = {
        ("length", "below 100"): {"mixed": make(0, 4, 60)},
        ("length", "100 to 999"): {"mixed": [*make(1, 3, 300), *make(2, 5, 300, 0.5)], "hourly": make(3, 4, 300)},
        ("intermittency", "intermittent"): {"mixed": make(2, 5, 300, 0.5)},
        ("frequency", "h"): {"hourly": make(3, 4, 300)},
    }
    for (by, name), targets in expected.items():
        found = part(report, by, name)
        assert pytest.approx(ratios(suite, tmp_path, **targets), rel=1e-9) == (found.WQL, found.MASE), name
        assert found.series == sum(map(len, targets.values()))
        assert found.datasets == len(targets)


def test_a_quarter_of_the_horizon_is_its_steps(suite: Suite, report: EvalReport) -> None:
    """WQL of a quarter from the loss and the values of its two steps."""
    logs = []
    for task in suite.tasks:
        frame = pd.read_parquet(suite.folder / f"{task.name}.parquet")
        season = 24 if task.name == "hourly" else 1
        losses = {"naive": 0.0, "seasonal": 0.0}
        for target in frame["target"]:
            past, future = target[:-HORIZON], target[-HORIZON:]
            forecasts = {"naive": np.repeat(past[-1], HORIZON), "seasonal": np.resize(past[-season:], HORIZON)}
            for name, one in forecasts.items():
                losses[name] += np.abs(future - one.astype(np.float32))[-2:].sum()
        logs.append(np.log(losses["naive"] / losses["seasonal"]))
    assert pytest.approx(float(np.exp(np.mean(logs))), rel=1e-6) == part(report, "horizon", "last quarter").WQL


def test_the_three_worst_come_first_and_have_intervals(report: EvalReport) -> None:
    values = [one.WQL for one in report.slices]
    assert values == sorted(values, reverse=True)
    assert [one.WQL_interval is not None for one in report.slices] == [True] * 3 + [False] * (len(values) - 3)
    for one in report.slices[:3]:
        assert one.WQL_interval[0] <= one.WQL <= one.WQL_interval[1]
    names = [(one.by, one.part) for one in report.slices]
    assert len(set(names)) == len(names)
    assert ("frequency", "h") in names
    assert ("season", "24") not in names  # the same series as those of the frequency


def test_what_all_data_have_in_common_is_no_slice(tmp_path: Path) -> None:
    suite = Suite("one", (write(tmp_path, "t", make(0, 4, 60), "D"),), tmp_path)
    assert {one.by for one in evaluate(["naive"], suite, baseline="auto-theta").slices} == {"horizon"}
    short = replace(suite, tasks=(replace(suite.tasks[0], prediction_length=2, offset=-2),))
    assert evaluate(["naive"], short).slices == ()
