"""Accuracy against time (Fig. 6): ranks by design relative to full heads, and trained models beside local ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rankscope.errors import OptionError
from rankscope.plots.bench import CostPoint
from rankscope.plots.pareto import front, name_points
from rankscope.plots.style import MARKS, Mark, figure, styled

METRICS = ("WQL", "MASE")


@dataclass(frozen=True)
class DesignPoint:
    """A model of low rank by design beside its baseline.

    Attributes:
        name: its first head width r₀.
        time: of a forecast, over the baseline's.
        WQL: over the baseline's.
        MASE: over the baseline's.
        published: whether it is the paper's, not ours.
    """

    name: str
    time: float
    WQL: float
    MASE: float
    published: bool = False


def frontier(
    design: Sequence[DesignPoint], models: Mapping[str, Sequence[CostPoint]], *, relative_to: str = "seasonal-naive"
) -> Figure:
    """Two panels of the first kind side by side, and below them WQL and MASE of the second kind.

    Args:
        design: models by design and their baseline, ours and published ones.
        models: kind of model → points; each kind has a mark of its own.
        relative_to: what the scores of ``models`` are divided by.

    Raises:
        OptionError: one of the two is empty.
    """
    points = [one for group in models.values() for one in group if math.isfinite(one.WQL) and math.isfinite(one.MASE)]
    if not design or not points:
        raise OptionError("there are no points: nothing can be drawn.")
    with styled():
        fig, _ = figure(height=6.2)
        fig.clear()
        grid = fig.add_gridspec(2, 1, height_ratios=(1.12, 2.5))
        above, below = fig.add_subfigure(grid[0]), fig.add_subfigure(grid[1])
        for ax, metric in zip(above.subplots(1, 2), METRICS, strict=True):
            _designed(ax, design, metric)
        handles, labels = ax.get_legend_handles_labels()
        above.legend(handles, labels, loc="outside upper center", ncols=2)
        for ax, metric in zip(below.subplots(2, 1, sharex=True), METRICS, strict=True):
            _timed(ax, models, points, metric)
            ax.set_ylabel(f"{metric} / {relative_to}")
        ax.set_xlabel("time of a forecast (s per series)")
    return fig


def _designed(ax: Axes, design: Sequence[DesignPoint], metric: str) -> None:
    ax.axhline(1.0, color="#d5dbe1", linewidth=0.6, zorder=0)
    for published in (True, False):
        chosen = [one for one in design if one.published == published]
        mark = Mark("#8a8a8a", "D", "-", filled=False) if published else MARKS[0]
        look = mark.kwargs() | {"linestyle": "none", "markersize": 4.0}
        who = "paper" if published else "ours"
        for position, one in enumerate(chosen):
            y = getattr(one, metric)
            label = f"head width from r₀, {who}" if position == 0 else None
            ax.plot([one.time], [y], gid=f"{one.name}, {who}", label=label, **look)
            ax.annotate(
                one.name,
                (one.time, y),
                xytext=(5, 0),
                textcoords="offset points",
                size=7,
                va="center",
                color=mark.colour,
            )
    ax.margins(y=0.12)
    ax.set_xlim(0, 1.25)
    ax.set_xlabel("time / $r_0 = 64$")
    ax.set_ylabel(f"{metric} / $r_0 = 64$")


def _timed(ax: Axes, models: Mapping[str, Sequence[CostPoint]], points: Sequence[CostPoint], metric: str) -> None:
    ax.set_xscale("log")
    for mark, (kind, group) in zip(MARKS, models.items(), strict=False):
        look = mark.kwargs() | {"linestyle": "none", "markersize": 4.0}
        for one in group:
            y = float(getattr(one, metric))
            ax.plot([one.seconds], [y], gid=f"{kind}: {one.name}", **look)
            ax.plot([one.low, one.high], [y, y], color=mark.colour, linewidth=0.7, zorder=1)
    places = [(one.seconds, float(getattr(one, metric))) for one in points]
    ax.step(*zip(*front(places), strict=True), where="post", color="#8a8a8a", linewidth=0.8, zorder=0, gid="front")
    ax.margins(x=0.12, y=0.12)
    name_points(ax, [one.name for one in points], places)
