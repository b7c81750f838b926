"""Benchmarks as figures: accuracy against time (Fig. 6), time against sizes, memory over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from rankscope.errors import OptionError
from rankscope.plots.labels import plain_ticks
from rankscope.plots.pareto import draw_front
from rankscope.plots.style import MARKS, figure, styled


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
            _draw(ax, drawn, metric)
            ax.set_xlabel("time of a forecast (s per series)")
            ax.set_ylabel(f"{metric} / {relative_to}")
    return fig


def _draw(ax: Axes, points: Sequence[CostPoint], metric: str) -> None:
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
    draw_front(ax, [one.name for one in points], places)


WIDE = 5
"""Ratio of the largest to the least score from which on the axis is logarithmic."""
GUIDE = "#b5b5b5"
COLUMNS = 2


def time_growth(result: Mapping[str, Any]) -> Figure:
    """Seconds over each size, both axes logarithmic: a panel per size, a line per runtime, whiskers over rounds.

    Grey lines of slope 1 pass through the last points; the exponents over the larger half of the values are written
    into the panels.

    Args:
        result: what ``benchmarks/growth.py`` writes: ``factors``, each with ``name``, ``values`` and by name of a
            runtime ``seconds`` (median, min and max per value) and ``exponent`` (the same of the exponent).

    Raises:
        OptionError: there is no size.
    """
    factors = result["factors"]
    if not factors:
        raise OptionError("no size was varied: nothing can be drawn.")
    rows = -(-(len(factors) + 1) // COLUMNS)
    with styled():
        fig, axes = figure(rows, COLUMNS, height=0.3 + 1.35 * rows, sharey=True)
        for number, (ax, factor) in enumerate(zip(axes, factors, strict=False)):
            _draw_growth(ax, factor)
            if number % COLUMNS == 0:
                ax.set_ylabel("time (s)")
        _limits(axes[0], factors)
        for ax in axes[len(factors) :]:
            ax.set_axis_off()
        guide, *lines = axes[0].get_legend_handles_labels()[0]
        note = "numbers: exponents over\nthe larger half of the values"
        axes[len(factors)].legend(handles=[*lines, guide], loc="center", title=note, title_fontsize=7)
    return fig


def _draw_growth(ax: Axes, factor: Mapping[str, Any]) -> None:
    values = factor["values"]
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    said = []
    for mark, (runtime, one) in zip(MARKS, factor["runtimes"].items(), strict=False):
        middle = [each["median"] for each in one["seconds"]]
        least, most = ([each[end] for each in one["seconds"]] for end in ("min", "max"))
        guide = [middle[-1] * value / values[-1] for value in values]
        label = "slope 1" if mark is MARKS[0] else "_"
        ax.plot(values, guide, color=GUIDE, linewidth=0.8, zorder=0, label=label, gid=f"{runtime}-guide")
        ax.vlines(values, least, most, color=mark.colour, linewidth=0.7, zorder=1)
        ax.plot(values, middle, label=runtime, gid=runtime, **mark.kwargs())
        said.append(f"{runtime} {one['exponent']['median']:.2f}")
    ax.text(0.03, 0.97, "\n".join(said), transform=ax.transAxes, va="top", size=7)
    ax.set_title(factor["name"])
    plain_ticks(ax.xaxis, values)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))


def _limits(ax: Axes, factors: Any) -> None:
    """Limits of the shared axis of time: what was measured, and room for the exponents above it."""
    seconds = [each for factor in factors for one in factor["runtimes"].values() for each in one["seconds"]]
    low, high = min(each["min"] for each in seconds), max(each["max"] for each in seconds)
    ax.set_ylim(low / 1.3, high * 1.6)
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0,) if high / low > 100 else (1.0, 2.0, 5.0)))


def memory_over_time(result: Mapping[str, Any]) -> Figure:
    """Draw the resident memory of an undisturbed run, and of one that was killed and resumed.

    Args:
        result: what ``benchmarks/stream.py`` writes: ``runs`` with ``whole``, ``killed`` and ``resumed``, each with
            ``samples`` of seconds, megabytes and finished parts.
    """
    with styled():
        fig, (axes,) = figure()
        killed = result["runs"]["killed"]["samples"][-1][0]
        unit, seconds = ("minutes", 60.0) if result["runs"]["whole"]["samples"][-1][0] > 300 else ("seconds", 1.0)
        for mark, name in zip(MARKS, ("whole", "killed", "resumed"), strict=False):
            samples = np.array(result["runs"][name]["samples"])
            shift = killed if name == "resumed" else 0.0
            axes.plot(
                (samples[:, 0] + shift) / seconds, samples[:, 1], color=mark.colour, linestyle=mark.dash, label=name
            )
        axes.axvline(killed / seconds, color="black", linestyle=":", linewidth=0.8)
        axes.set(xlabel=unit, ylabel="resident memory (MB)", ylim=(0, None))
        axes.legend()
    return fig
