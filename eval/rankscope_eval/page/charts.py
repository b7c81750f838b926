"""Charts that the page draws itself; the others come from `rankscope.plots`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from rankscope.plots import MARKS, figure, styled
from rankscope.plots.labels import around_one, plain_ticks
from rankscope_eval.bench.report import BenchRow
from rankscope_eval.numbers import duration
from rankscope_eval.page.parts import printable

_TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_MOST = 28


def plain_text(name: str) -> str:
    """A name that matplotlib writes as it is.

    >>> plain_text("a$b$")
    'a\\\\$b\\\\$'
    """
    return printable(name).replace("\\", "/").replace("$", r"\$").replace("\n", " ")


def shortened(name: str, most: int = _MOST) -> str:
    """A name that fits beside a chart: its end says most.

    >>> shortened("amazon/chronos-t5-base", 12)
    '…nos-t5-base'
    """
    return name if len(name) <= most else "…" + name[-(most - 1) :]


def relative_scores(
    datasets: Sequence[str],
    scores: Sequence[tuple[str, Sequence[float]]],
    spans: Sequence[Sequence[tuple[float, float] | None]],
    metric: str,
    baseline: str,
) -> Figure:
    """Score over the baseline's score on every data set, one mark per model; left of the line is better.

    Args:
        datasets: names, top to bottom.
        scores: model and its ratios, NaN where there is none.
        spans: intervals of these ratios, drawn as bars; None where there is none.
        metric: WQL or MASE.
        baseline: what they are over.
    """
    places = range(len(datasets))[::-1]
    with styled():
        fig, (ax,) = figure(height=0.75 + 0.155 * len(datasets) + 0.13 * len(scores))
        ax.axvline(1.0, color="#8a8a8a", linewidth=0.8, zorder=0)
        for number, (model, ratios) in enumerate(scores):
            look = MARKS[number % len(MARKS)].kwargs() | {"linestyle": "none", "markersize": 4.2}
            shift = 0.36 * (number / max(1, len(scores) - 1) - 0.5) if len(scores) > 1 else 0.0
            heights = [place - shift for place in places]
            ax.plot(ratios, heights, label=plain_text(shortened(model)), **look)
            for ends, height in zip(spans[number], heights, strict=True):
                if ends is not None:
                    ax.plot(ends, [height] * 2, color=look["color"], linewidth=0.8, zorder=1)
        known = [ratio for _, ratios in scores for ratio in ratios if math.isfinite(ratio)]
        known += [end for line in spans for ends in line if ends is not None for end in ends]
        low, high = min([*known, 1 / 1.1]), max([*known, 1.1])
        room = (high / low) ** 0.05
        ax.set_xscale("log")
        ax.set_xlim(low / room, high * room)
        shown = [tick for tick in _TICKS if low / room <= tick <= high * room]
        plain_ticks(ax.xaxis, around_one(shown, (high / low) ** 0.085))
        ax.set_yticks(list(places), [plain_text(shortened(name)) for name in datasets])
        ax.tick_params(axis="y", length=0)
        ax.set_ylim(-0.6, len(datasets) - 0.4)
        ax.grid(axis="y", color="#e4e8ec", linewidth=0.5)
        ax.set_xlabel(f"{metric} / {metric} of {plain_text(shortened(baseline))}")
        fig.legend(loc="outside upper left", ncols=1 if any(len(model) > 14 for model, _ in scores) else 3)
    return fig


def coverage_by_step(
    places: Float[np.ndarray, " places"], curves: Sequence[tuple[str, Float[np.ndarray, " places"]]]
) -> Figure:
    """Share of targets in the central 80 % interval against the position in the horizon, one line per model.

    Args:
        places: positions, as shares of the horizon.
        curves: model and its coverage.
    """
    with styled():
        fig, (ax,) = figure(height=1.9)
        ax.axhline(0.8, color="#8a8a8a", linewidth=0.8, zorder=0)
        for number, (model, shares) in enumerate(curves):
            if np.nanmax(shares, initial=0.0) < 0.05:  # point forecasts
                continue
            look = MARKS[number % len(MARKS)].kwargs() | {"markersize": 3, "markevery": 3}
            ax.plot(places, shares, label=plain_text(shortened(model)), **look)
        ax.set_xlim(0, 1)
        ax.set_ylim(0, 1)
        ax.set_xlabel("position in the horizon")
        ax.set_ylabel("coverage")
        fig.legend(loc="outside upper left", ncols=1 if any(len(model) > 14 for model, _ in curves) else 3)
    return fig


def times(rows: Sequence[BenchRow]) -> Figure:
    """Median and range of the time of a forecast, one line per case, a panel per batch; a tick is the roofline."""
    batches = list(dict.fromkeys(row.batch for row in rows))
    most = max(sum(row.batch == batch for row in rows) for batch in batches)
    with styled():
        fig, axes = figure(len(batches), 1, height=len(batches) * (0.55 + 0.17 * most) + 0.1)
        for ax, batch in zip(axes, batches, strict=True):
            same = [row for row in rows if row.batch == batch]
            for number, row in enumerate(same[::-1]):
                look = MARKS[0].kwargs() | {"linestyle": "none", "markersize": 4}
                ax.plot(
                    [row.seconds.min * 1e3, row.seconds.max * 1e3],
                    [number] * 2,
                    color=look["color"],
                    linewidth=2.4,
                    alpha=0.35,
                    solid_capstyle="butt",
                )
                ax.plot([row.seconds.median * 1e3], [number], **look)
                if row.roofline_seconds:
                    ax.plot(
                        [row.roofline_seconds * 1e3],
                        [number],
                        color=MARKS[1].colour,
                        marker="|",
                        markersize=6,
                        linestyle="none",
                    )
                ax.annotate(
                    duration(row.seconds.median),
                    (row.seconds.max * 1e3, number),
                    (4, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=7,
                )
            ax.set_yticks(range(len(same)), [plain_text(shortened(row.label)) for row in same[::-1]])
            ax.set_ylim(-0.6, len(same) - 0.4)
            ax.set_xlim(0, 1.22 * max(row.seconds.max for row in same) * 1e3)
            ax.tick_params(axis="y", length=0)
            ax.set_title(f"batch {batch}")
        axes[-1].set_xlabel("time of one forecast of the batch (ms)")
    return fig
