"""Accuracy against time, memory or size: of the points of a sweep, or of models (Fig. 6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rankscope.errors import OptionError
from rankscope.plots.labels import log_ticks, plain_ticks, short_names, spread
from rankscope.plots.style import MARKS, figure, styled

if TYPE_CHECKING:
    from rankscope.measure.sweep import SweepReport, SweepRow

COSTS = {
    "forecast_seconds": "time of the forecasts (s)",
    "attention_parameters": "parameters of attention matrices",
    "bytes": "weights (bytes)",
}
"""Costs that accuracy may be drawn against, and the names of their axes."""
SCORES = {"relative_MASE": "MASE / seasonal naive", "relative_WQL": "WQL / seasonal naive"}

WIDE = 5
"""Ratio of the largest to the least score from which on the axis is logarithmic."""


@dataclass(frozen=True)
class CostPoint:
    """A model's time and scores.

    Attributes:
        name: its label.
        seconds: per series, the median.
        low: the least.
        high: the largest.
        WQL: relative.
        MASE: relative.
        reference: it needs no checkpoint.
    """

    name: str
    seconds: float
    low: float
    high: float
    WQL: float
    MASE: float
    reference: bool = False


def pareto(report: SweepReport, *, cost: str = "forecast_seconds", baseline: str = "baseline") -> Figure:
    """Relative MASE and WQL of every scored point against its cost; the step line joins points that none beats.

    Args:
        report: a sweep that was scored.
        cost: ``forecast_seconds``, ``attention_parameters`` or ``bytes``.
        baseline: the point that is drawn with a mark of its own, if there is one.

    Raises:
        OptionError: no point was scored, or the cost is none that is known.
    """
    if cost not in COSTS:
        raise OptionError(f"cost {cost!r} is not known: choose from {', '.join(COSTS)}.")
    rows = [row for row in report.done if all(row.scores.get(score) is not None for score in SCORES)]
    if not rows:
        raise OptionError(f"no point of sweep {report.name!r} was scored: run it with --score SUITE.")
    with styled():
        fig, axes = figure(2, 1)
        for ax, (score, title) in zip(axes, SCORES.items(), strict=True):
            _draw_sweep(ax, rows, cost, score, baseline)
            ax.set_xlabel(COSTS[cost])
            ax.set_ylabel(title)
            ax.set_xlim(left=0)
    return fig


def pareto_of_points(points: Sequence[CostPoint], *, relative_to: str = "seasonal-naive") -> Figure:
    """WQL and MASE against seconds per series; hollow squares are references, the step line joins what none beats.

    Raises:
        OptionError: no point has both scores.
    """
    drawn = [one for one in points if math.isfinite(one.WQL) and math.isfinite(one.MASE)]
    if not drawn:
        raise OptionError("no model has both scores: nothing can be drawn.")
    with styled():
        fig, axes = figure(2, 1)
        for ax, metric in zip(axes, ("WQL", "MASE"), strict=True):
            _draw_models(ax, drawn, metric)
            ax.set_xlabel("time of a forecast (s per series)")
            ax.set_ylabel(f"{metric} / {relative_to}")
    return fig


def front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points that no other is at least as good as in both coordinates, cheapest first.

    >>> front([(1.0, 3.0), (2.0, 1.0), (3.0, 2.0), (2.0, 1.0)])
    [(1.0, 3.0), (2.0, 1.0)]
    """
    best: list[tuple[float, float]] = []
    for x, y in sorted(set(points)):
        if not best or y < best[-1][1]:
            best.append((x, y))
    return best


def _cost(row: SweepRow, cost: str) -> float:
    if cost == "forecast_seconds":
        return float(row.scores[cost] or 0.0)
    return float(getattr(row.ranks, cost))


def _draw_sweep(ax: Axes, rows: Sequence[SweepRow], cost: str, score: str, baseline: str) -> None:
    points = [(_cost(row, cost), float(row.scores[score] or 0.0)) for row in rows]
    for row, (x, y) in zip(rows, points, strict=True):
        mark = MARKS[1] if row.point == baseline else MARKS[0]
        look = mark.kwargs() | {"linestyle": "none", "markersize": 4.5}
        ax.plot([x], [y], gid=row.point, **look)
    _draw_front(ax, [row.point for row in rows], points)


def _draw_models(ax: Axes, points: Sequence[CostPoint], metric: str) -> None:
    ax.set_xscale("log")
    places = [(one.seconds, float(getattr(one, metric))) for one in points]
    low, high = min(y for _, y in places), max(y for _, y in places)
    if low > 0 and high > WIDE * low:  # one that explodes would flatten all others
        ax.set_yscale("log")
        plain_ticks(ax.yaxis, [tick for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if low / 2 < tick < 2 * high])
    for one, (x, y) in zip(points, places, strict=True):
        look = MARKS[int(one.reference)].kwargs() | {"linestyle": "none", "markersize": 4.5}
        ax.plot([x], [y], gid=one.name, **look)
        ax.plot([one.low, one.high], [y, y], color=look["color"], linewidth=0.7, zorder=1)
    log_ticks(ax.xaxis, min(one.low for one in points), max(one.high for one in points))
    _draw_front(ax, [one.name for one in points], places)


def _draw_front(ax: Axes, names: Sequence[str], points: Sequence[tuple[float, float]]) -> None:
    """Draw the step line through the front, and write names right of the axes, each joined to its point."""
    ax.step(*zip(*front(points), strict=True), where="post", color="#8a8a8a", linewidth=0.8, zorder=0, gid="front")
    ax.margins(x=0.12, y=0.15)
    ax.autoscale_view()
    low, high = ax.get_ylim()
    wanted = [(y - low) / (high - low) for _, y in points]
    for name, (x, y), place in zip(short_names(names), points, spread(wanted, 0.085, 0.02, 0.98), strict=True):
        ax.annotate(
            name,
            (x, y),
            xytext=(1.03, place),
            textcoords="axes fraction",
            va="center",
            ha="left",
            size=7,
            arrowprops={
                "arrowstyle": "-",
                "linewidth": 0.4,
                "color": "#8a8a8a",
                "relpos": (0, 0.5),
                "shrinkA": 1,
                "shrinkB": 3,
            },
        )
