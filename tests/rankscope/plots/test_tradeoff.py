from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.axes import Axes

from rankscope.errors import OptionError
from rankscope.measure.tradeoff import (
    OUT_OF_REACH,
    PUBLISHED,
    Judgement,
    Measures,
    Original,
    Table2Point,
    Table2Report,
    Verdict,
)
from rankscope.plots import save_figure, table2

METHODS = ("svd", "asvd", "whitened", "theorem3", "joint", "random", "joint+healed")


def made(methods=METHODS, ratios=(0.5, 0.15, 0.05), seeds=(0, 1, 2), allocations=("energy",), score="relative_WQL"):
    points = []
    for ratio in ratios:
        for m, method in enumerate(methods):
            for a, allocation in enumerate(allocations):
                for seed in seeds:
                    value = 1 + (0.1 + 0.05 * m + 0.02 * a + 0.01 * seed) * (0.1 / ratio)
                    measures = Measures(ratio * 0.99, **{score: value})
                    name = f"{ratio}-{method}-{allocation}-{seed}"
                    points.append(Table2Point(name, ratio, method, allocation, seed, measures=measures))
    points.append(Table2Point("lost", 0.01, "svd", "default", None, OUT_OF_REACH, "out of reach"))
    return Table2Report("toy", "chronos-t5", {}, Original(1, 4, 0), tuple(points))


def lines(ax: Axes) -> dict:
    return {line.get_gid(): line for line in ax.lines if line.get_gid()}


def test_judged_rows_are_drawn_with_their_intervals() -> None:
    report = made(methods=("joint",))
    says = Verdict("not shown", 0.02)
    judged = tuple(
        Judgement(row.ratio, row.method, row.allocation, row.heal_steps, 1.1, 1.2, (0.9, 1.3), None, says, says)
        for row in report.rows
    )
    (ax,) = table2(replace(report, judgements=judged)).axes
    assert lines(ax)["joint"].get_ydata() == pytest.approx([1.1] * 3)
    bars = [segment[:, 1] for one in ax.collections for segment in one.get_segments()]
    assert [tuple(ends) for ends in bars] == [pytest.approx((0.9, 1.3))] * 3


def test_lines_are_medians_against_the_reached_size_and_whiskers_span_the_seeds() -> None:
    report = made(methods=("svd", "joint"))
    (ax,) = table2(report).axes
    drawn = lines(ax)
    assert list(drawn) == ["svd", "joint", "published"]
    assert drawn["joint"].get_xdata() == pytest.approx([0.0495, 0.1485, 0.495])
    assert drawn["joint"].get_ydata() == pytest.approx([1.32, 1 + 0.16 / 1.5, 1.032])
    whiskers = [segment for container in ax.containers[1:] for segment in container.lines[2][0].get_segments()]
    assert [float(y) for _, y in whiskers[0]] == pytest.approx([1.30, 1.34])
    assert drawn["published"].get_ydata()[0] == PUBLISHED[0].in_domain_WQL
    assert ax.get_xscale() == ax.get_yscale() == "log"
    ticks = [label.get_text() for label in ax.get_xticklabels()]
    assert ticks == ["0.05", "0.15", "0.5", "1"]


def test_seven_methods_are_told_apart_without_colour() -> None:
    (ax,) = table2(made()).axes
    looks = {
        (one.get_marker(), one.get_linestyle(), one.get_markerfacecolor() == "white") for one in lines(ax).values()
    }
    assert len(looks) == len(METHODS) + 1


def test_several_allocations_are_lines_of_their_own() -> None:
    (ax,) = table2(made(methods=("svd", "joint"), allocations=("energy", "schedule"), seeds=(0,))).axes
    assert list(lines(ax))[:4] == ["svd, energy", "svd, schedule", "joint, energy", "joint, schedule"]
    assert not ax.containers


def test_text_models_are_drawn_by_log_perplexity() -> None:
    (ax,) = table2(made(score="relative_LPPL")).axes
    assert ax.get_ylabel() == "LPPL / original"
    assert lines(ax)["published"].get_ydata()[0] == PUBLISHED[0].text_LPPL


def test_what_was_not_measured_is_refused() -> None:
    with pytest.raises(OptionError, match="no relative_MASE: it has relative_WQL"):
        table2(made(), measure="relative_MASE")
    with pytest.raises(OptionError, match="no score: it has none"):
        table2(made(ratios=()))


def test_a_lone_point_can_be_drawn(tmp_path: Path) -> None:
    png, svg = save_figure(table2(made(methods=("svd",), ratios=(1.0,), seeds=(0,))), tmp_path / "one")
    assert png.stat().st_size > 5_000
    assert "size ratio" in svg.read_text()
