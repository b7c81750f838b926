"""Accuracy against time, memory or size of the points of a sweep (Fig. 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rankscope.errors import OptionError
from rankscope.plots.labels import spread
from rankscope.plots.style import MARKS, figure, styled

if TYPE_CHECKING:
    from rankscope.measure.sweep import SweepReport, SweepRow

COSTS = {
    "forecast_seconds": "time of the forecasts (s)",
    "attention_parameters": "numbers in attention matrices",
    "bytes": "weights (bytes)",
}
"""Costs that accuracy may be drawn against, and the names of their axes."""
SCORES = {"relative_MASE": "MASE / seasonal naive", "relative_WQL": "WQL / seasonal naive"}


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
            _draw(ax, rows, cost, score, baseline)
            ax.set_xlabel(COSTS[cost])
            ax.set_ylabel(title)
            ax.set_xlim(left=0)
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


def _draw(ax: Axes, rows: Sequence[SweepRow], cost: str, score: str, baseline: str) -> None:
    points = [(_cost(row, cost), float(row.scores[score] or 0.0)) for row in rows]
    for row, (x, y) in zip(rows, points, strict=True):
        mark = MARKS[1] if row.point == baseline else MARKS[0]
        look = mark.kwargs() | {"linestyle": "none", "markersize": 4.5}
        ax.plot([x], [y], gid=row.point, **look)
    draw_front(ax, [row.point for row in rows], points)


def draw_front(ax: Axes, names: Sequence[str], points: Sequence[tuple[float, float]]) -> None:
    """Draw the step line through the front, and write names right of the axes, each joined to its point."""
    ax.step(*zip(*front(points), strict=True), where="post", color="#8a8a8a", linewidth=0.8, zorder=0, gid="front")
    ax.margins(x=0.12, y=0.15)
    ax.autoscale_view()
    low, high = ax.get_ylim()
    wanted = [(y - low) / (high - low) for _, y in points]
    for name, (x, y), place in zip(names, points, spread(wanted, 0.085, 0.02, 0.98), strict=True):
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
