"""Time of forecasts against each of the sizes that it grows with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from rankscope.errors import OptionError
from rankscope.plots.style import MARKS, figure, styled

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
            _draw(ax, factor)
            if number % COLUMNS == 0:
                ax.set_ylabel("time (s)")
        _limits(axes[0], factors)
        for ax in axes[len(factors) :]:
            ax.set_axis_off()
        guide, *lines = axes[0].get_legend_handles_labels()[0]
        note = "numbers: exponents over\nthe larger half of the values"
        axes[len(factors)].legend(handles=[*lines, guide], loc="center", title=note, title_fontsize=7)
    return fig


def _draw(ax: Axes, factor: Mapping[str, Any]) -> None:
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
    ax.xaxis.set_major_locator(FixedLocator(values))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))


def _limits(ax: Axes, factors: Any) -> None:
    """Limits of the shared axis of time: what was measured, and room for the exponents above it."""
    seconds = [each for factor in factors for one in factor["runtimes"].values() for each in one["seconds"]]
    low, high = min(each["min"] for each in seconds), max(each["max"] for each in seconds)
    ax.set_ylim(low / 1.3, high * 1.6)
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0,) if high / low > 100 else (1.0, 2.0, 5.0)))
