"""Accuracy against the time of a forecast (Fig. 6), with models that need no checkpoint for reference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rankscope.errors import OptionError
from rankscope.plots.pareto import front, name_points
from rankscope.plots.style import MARKS, figure, styled


@dataclass(frozen=True)
class CostPoint:
    """A model's time and scores.

    Attributes:
        name: how it is labelled.
        seconds: per series, the median.
        low: the least.
        high: the largest.
        WQL: relative.
        MASE: relative.
        reference: whether it needs no checkpoint.
    """

    name: str
    seconds: float
    low: float
    high: float
    WQL: float
    MASE: float
    reference: bool = False


def pareto_of_points(points: Sequence[CostPoint], *, relative_to: str = "seasonal-naive") -> Figure:
    """WQL and MASE against seconds per series; hollow squares are references, the step line joins what none beats.

    Raises:
        OptionError: no point has both scores.
    """
    drawn = [one for one in points if math.isfinite(one.WQL) and math.isfinite(one.MASE)]
    if not drawn:
        raise OptionError("no model has both scores: nothing can be drawn.")
    with styled():
        fig, axes = figure(2, 1, height=4.5)
        for ax, metric in zip(axes, ("WQL", "MASE"), strict=True):
            _draw(ax, drawn, metric)
            ax.set_xlabel("time of a forecast (s per series)")
            ax.set_ylabel(f"{metric} / {relative_to}")
    return fig


def _draw(ax: Axes, points: Sequence[CostPoint], metric: str) -> None:
    ax.set_xscale("log")
    places = [(one.seconds, float(getattr(one, metric))) for one in points]
    for one, (x, y) in zip(points, places, strict=True):
        look = MARKS[int(one.reference)].kwargs() | {"linestyle": "none", "markersize": 4.5}
        ax.plot([x], [y], gid=one.name, **look)
        ax.plot([one.low, one.high], [y, y], color=look["color"], linewidth=0.7, zorder=1)
    ax.step(*zip(*front(places), strict=True), where="post", color="#8a8a8a", linewidth=0.8, zorder=0, gid="front")
    ax.margins(x=0.12, y=0.15)
    name_points(ax, [one.name for one in points], places)
