"""Benchmarks: growth of time, a panel per size with a guide of slope 1 through the last points; memory over time."""

from typing import Any

import numpy as np
import pytest

from rankscope.errors import OptionError
from rankscope.plots import memory_over_time, time_growth


def factor(name: str, values: tuple[int, ...], power: float) -> dict[str, Any]:
    def runtime(scale: float) -> dict[str, Any]:
        middle = [scale * value**power for value in values]
        seconds = [{"median": each, "min": 0.9 * each, "max": 1.2 * each} for each in middle]
        return {"seconds": seconds, "exponent": {"median": power, "min": power, "max": power}}

    return {"name": name, "values": list(values), "runtimes": {"stock": runtime(0.03), "fast": runtime(0.01)}}


@pytest.fixture
def result() -> dict[str, Any]:
    return {"factors": [factor("series", (4, 8, 16, 32), 1.0), factor("context", (64, 128, 256), 0.5)]}


def test_every_size_has_a_panel_with_its_times_and_exponents(result: dict[str, Any]) -> None:
    series, context, legend, empty = time_growth(result).axes
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


def test_guides_rise_linearly_to_the_last_points(result: dict[str, Any]) -> None:
    _, context, *_ = time_growth(result).axes
    lines = {line.get_gid(): line for line in context.lines}
    for runtime, scale in (("stock", 0.03), ("fast", 0.01)):
        guide = lines[f"{runtime}-guide"].get_ydata()
        np.testing.assert_allclose(guide, [4 * scale, 8 * scale, 16 * scale])
    assert all(axis.get_xscale() == axis.get_yscale() == "log" for axis in (context,))


def test_all_times_lie_inside_the_shared_limits(result: dict[str, Any]) -> None:
    low, high = time_growth(result).axes[0].get_ylim()
    times = [
        each[key]
        for one in result["factors"]
        for runtime in one["runtimes"].values()
        for each in runtime["seconds"]
        for key in ("min", "max")
    ]
    assert low < min(times) < max(times) < high


def test_nothing_varied_is_refused() -> None:
    with pytest.raises(OptionError, match="nothing can be drawn"):
        time_growth({"factors": []})


def test_the_resumed_run_is_drawn_behind_the_killed_one() -> None:
    runs = {
        "whole": {"samples": [[0.0, 100.0, 0], [600.0, 500.0, 4]]},
        "killed": {"samples": [[0.0, 110.0, 0], [300.0, 510.0, 2]]},
        "resumed": {"samples": [[0.0, 120.0, 2], [360.0, 520.0, 4]]},
    }
    (axes,) = memory_over_time({"runs": runs}).axes
    assert axes.get_xlabel() == "minutes"
    lines = {line.get_label(): line.get_xydata() for line in axes.lines}
    np.testing.assert_allclose(lines["whole"], [[0, 100], [10, 500]])
    np.testing.assert_allclose(lines["killed"], [[0, 110], [5, 510]])
    np.testing.assert_allclose(lines["resumed"], [[5, 120], [11, 520]])
