"""Figures of the project's own results: growth of time with a guide of slope 1, memory over time, medians of roads."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def draw(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("draw")


def factor(name: str, values: tuple[int, ...], power: float) -> dict[str, Any]:
    def runtime(scale: float) -> dict[str, Any]:
        middle = [scale * value**power for value in values]
        seconds = [{"median": each, "min": 0.9 * each, "max": 1.2 * each} for each in middle]
        return {"seconds": seconds, "exponent": {"median": power, "min": power, "max": power}}

    return {"name": name, "values": list(values), "runtimes": {"stock": runtime(0.03), "fast": runtime(0.01)}}


@pytest.fixture
def result() -> dict[str, Any]:
    return {"factors": [factor("series", (4, 8, 16, 32), 1.0), factor("context", (64, 128, 256), 0.5)]}


def test_every_size_has_a_panel_with_its_times_and_exponents(draw: ModuleType, result: dict[str, Any]) -> None:
    series, context, legend, empty = draw.growth(result).axes
    assert [axes.get_title(loc="left") for axes in (series, context)] == ["series", "context"]
    assert [axes.texts[0].get_text() for axes in (series, context)] == [
        "stock 1.00\nfast 1.00",
        "stock 0.50\nfast 0.50",
    ]
    lines = {line.get_gid(): line for line in context.lines}
    np.testing.assert_allclose(lines["fast"].get_xydata(), [[v, 0.01 * v**0.5] for v in (64, 128, 256)])
    assert lines["stock"].get_linestyle() != lines["fast"].get_linestyle()
    assert lines["stock"].get_marker() != lines["fast"].get_marker()
    assert [text.get_text() for text in legend.get_legend().get_texts()] == ["stock", "fast", "slope 1"]
    assert not empty.axison


def test_guides_rise_linearly_to_the_last_points(draw: ModuleType, result: dict[str, Any]) -> None:
    _, context, *_ = draw.growth(result).axes
    lines = {line.get_gid(): line for line in context.lines}
    for runtime, scale in (("stock", 0.03), ("fast", 0.01)):
        guide = lines[f"{runtime}-guide"].get_ydata()
        np.testing.assert_allclose(guide, [4 * scale, 8 * scale, 16 * scale])
    assert all(axis.get_xscale() == axis.get_yscale() == "log" for axis in (context,))


def test_all_times_lie_inside_the_shared_limits(draw: ModuleType, result: dict[str, Any]) -> None:
    low, high = draw.growth(result).axes[0].get_ylim()
    times = [
        each[key]
        for one in result["factors"]
        for runtime in one["runtimes"].values()
        for each in runtime["seconds"]
        for key in ("min", "max")
    ]
    assert low < min(times) < max(times) < high


def test_the_resumed_run_is_drawn_behind_the_killed_one(draw: ModuleType) -> None:
    runs = {
        "whole": {"samples": [[0.0, 100.0, 0], [600.0, 500.0, 4]]},
        "killed": {"samples": [[0.0, 110.0, 0], [300.0, 510.0, 2]]},
        "resumed": {"samples": [[0.0, 120.0, 2], [360.0, 520.0, 4]]},
    }
    (axes,) = draw.stream({"runs": runs}).axes
    assert axes.get_xlabel() == "minutes"
    lines = {line.get_label(): line.get_xydata() for line in axes.lines}
    np.testing.assert_allclose(lines["whole"], [[0, 100], [10, 500]])
    np.testing.assert_allclose(lines["killed"], [[0, 110], [5, 510]])
    np.testing.assert_allclose(lines["resumed"], [[5, 120], [11, 520]])


def test_the_figure_has_medians_of_what_was_reached(draw: ModuleType) -> None:
    def point(seed: int, wql: float) -> dict[str, Any]:
        form = {"parameters": 0.25, "bytes": 0.2, "WQL": wql} | ({} if seed else {"time": {"32": 0.6}})
        form |= {"WQL_interval": [wql - 0.1, wql + 0.2], "worst": {"WQL": ["hours", wql + 1]}}
        return {"road": "joint", "size": 0.25, "seed": seed, "storages": {"float": form, "int8": form}}

    lost = {"road": "heads", "size": 0.25, "seed": 0, "out_of_reach": "too small"}
    result = {"points": [point(0, 1.0), point(1, 1.3), point(2, 1.1), lost]}
    found = draw.by_road(result, "float", "time", "WQL")
    assert found == {"joint": [{"at": 0.6, "up": 1.1, "low": 0.9, "high": 1.5}]}
    assert draw.by_road(result, "int8", "bytes", "worst") == {"joint": [{"at": 0.2, "up": 2.1}]}
    assert [line.get_label() for line in draw.roads(result).axes[0].lines[:1]] == ["joint"]


def test_every_figure_of_the_documentation_is_drawn_again(
    draw: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["draw.py", "--out", str(tmp_path)])
    draw.main()
    assert {file.stem for file in tmp_path.glob("*.png")} == {"growth", "stream", "roads", "snapshots"}
