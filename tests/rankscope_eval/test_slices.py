"""Comparisons on parts of the data: what a slice holds is what an evaluation of it alone says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rankscope.series import Series
from rankscope_eval import evaluate, slices
from rankscope_eval.relative import FEWEST
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


def test_intervals_of_the_worst_of_many_are_wider_and_over_sources(
    suite: Suite, report: EvalReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def noted(draws: list, sources: list[str], *, level: float) -> None:
        asked.append((tuple(sources), level))

    monkeypatch.setattr(slices, "interval", noted)
    same = replace(suite, tasks=tuple(replace(task, source="one") for task in suite.tasks))
    evaluate(["naive"], same)
    assert {level for _, level in asked} == {1 - 0.05 / len(report.slices)}  # Bonferroni's
    assert {name for sources, _ in asked for name in sources} == {"one"}


def test_parts_of_a_few_series_are_left_out(suite: Suite, tmp_path: Path) -> None:
    few = write(tmp_path, "few", make(3, FEWEST - 1, 300), "h")
    both = Suite("few", (write(tmp_path, "mixed", make(0, 4, 60), "D"), few), tmp_path)
    assert not [one for one in evaluate(["naive"], both).slices if one.by == "frequency" and one.part == "h"]


@pytest.mark.parametrize(("zeros", "sparse"), [(0.2, False), (0.3, True)])
def test_demand_is_intermittent_from_syntetos_and_boylans_interval_on(
    tmp_path: Path, zeros: float, sparse: bool
) -> None:
    """A mean interval between demands of 1.25, or of 1.43; theirs is 1.32."""
    target = np.where(np.arange(100 + HORIZON) % 10 < 10 * zeros, 0.0, 1.0)
    one = Series("a", pd.Period("2020-01-01", "D"), target)
    task = Task("t", HORIZON, -HORIZON)
    assert bool(slices._properties([one], task)["intermittency", "intermittent"][0]) is sparse


def test_what_all_data_have_in_common_is_no_slice(tmp_path: Path) -> None:
    suite = Suite("one", (write(tmp_path, "t", make(0, 4, 60), "D"),), tmp_path)
    assert {one.by for one in evaluate(["naive"], suite, baseline="auto-theta").slices} == {"horizon"}
    short = replace(suite, tasks=(replace(suite.tasks[0], prediction_length=2, offset=-2),))
    assert evaluate(["naive"], short).slices == ()
