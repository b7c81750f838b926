"""Labels written at the ends of lines, in place of a legend."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, SupportsFloat

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from rankscope.plots.style import MARKS, SEQUENCE

POINTS = 7.0
"""Size of the labels."""
LONGEST = 28
"""Characters of a model's name beside which a figure has room for its panels."""


def sequence_colours(count: int) -> list[str]:
    """Colours of ``count`` ordered lines, dark to light; the lightest is still readable on white."""
    return [to_hex(colormaps[SEQUENCE](x)) for x in np.linspace(0.0, 0.78, max(count, 1))[:count]]


def short_names(models: Sequence[str]) -> list[str]:
    """Last parts of hub ids or paths, or the whole names where the last parts of different models are equal.

    Names above `LONGEST` characters lose their middle, unless that makes two of them equal.

    >>> short_names(["amazon/chronos-t5-base", "./small/"]), short_names(["a/x", "b/x"])
    (['chronos-t5-base', 'small'], ['a/x', 'b/x'])
    >>> short_names(["runs/chronos-bolt-base-joint-0.15-int8-healed"])
    ['chronos-bolt-b…5-int8-healed']
    """
    last = [model.rstrip("/").rsplit("/", 1)[-1] for model in models]
    for names in ([*map(_without_middle, last)], last, [*map(_without_middle, models)]):
        if len(set(names)) == len(set(models)):
            return names
    return list(models)


def _without_middle(name: str) -> str:
    half = LONGEST // 2
    return name if len(name) <= LONGEST else f"{name[:half]}…{name[1 - half :]}"


def wrapped(title: str, columns: int) -> str:
    """A title broken at hyphens and spaces to fit above one of ``columns`` panels of a column-wide figure."""
    return textwrap.fill(title, 44 if columns == 1 else 34 // columns)


def thinned(count: int, most: int) -> list[int]:
    """At most ``most`` of the positions 0 … count − 1, evenly spread, first and last included.

    >>> thinned(5, 9), thinned(24, 4)
    ([0, 1, 2, 3, 4], [0, 8, 15, 23])
    """
    if count <= most:
        return list(range(count))
    return [round(x) for x in np.linspace(0, count - 1, most)]


def spread(wanted: Sequence[float], gap: float, low: float = 0.0, high: float = 1.0) -> list[float]:
    """Positions nearest to the wanted ones with at least ``gap`` between neighbours, kept in [low, high].

    The order is kept. Where there is no room for all, they are spaced evenly over the whole interval.

    >>> spread([0.5, 0.5], 0.1)
    [0.45, 0.55]
    """
    count = len(wanted)
    if count == 0:
        return []
    gap = min(gap, (high - low) / max(count - 1, 1))
    order = np.argsort(wanted, kind="stable")
    groups: list[tuple[float, int]] = []  # mean of the wanted starts, size
    for rank, index in enumerate(order):
        groups.append((wanted[index] - rank * gap, 1))
        while len(groups) > 1 and groups[-2][0] > groups[-1][0]:
            (a, m), (b, n) = groups[-2:]
            groups[-2:] = [((a * m + b * n) / (m + n), m + n)]
    starts = [start for start, size in groups for _ in range(size)]
    top = high - (count - 1) * gap
    placed = [0.0] * count
    for rank, index in enumerate(order):
        placed[index] = round(float(np.clip(starts[rank], low, top) + rank * gap), 9)
    return placed


def label_ends(ax: Axes, lines: Sequence[Line2D], labels: Sequence[str], *, height: float) -> None:
    """Write each line's label where the line ends, moved apart where labels would meet.

    Lines that reach the right edge are labelled right of the axes; lines that leave through the bottom are
    labelled there. Where most leave that way a legend in the empty corner replaces the labels. Limits and scales
    must be final.

    Args:
        ax: axes of the lines.
        lines: lines whose last point inside the limits is labelled.
        labels: one per line.
        height: of the axes in inches, about; it sets how many labels fit.
    """
    ends = [_visible_end(ax, line) for line in lines]
    right = [i for i, (x, _) in enumerate(ends) if x > 0.9]
    if len(lines) > 2 * len(right) and len(lines) > 1:
        # most lines fall steeply and leave a corner empty; there dashes tell them apart without colour
        for i, line in enumerate(lines):
            line.set_linestyle(MARKS[i % len(MARKS)].dash)
        ax.legend(lines, labels, loc="best", ncols=math.ceil(len(lines) / 8))
        return
    row = 1.15 * POINTS / (72 * height)
    for i, place in zip(right, spread([ends[i][1] for i in right], row, 0.01, 0.99), strict=True):
        x, y = ends[i]
        _write(ax, lines[i], labels[i], [(x, y), (1.01, y), (1.045, place)], (1.06, place), None)
    wide = 0.022 * max((len(label) for label in labels), default=0)
    below = [i for i, (x, _) in enumerate(ends) if x <= 0.9]
    for i, place in zip(below, spread([ends[i][0] + 0.02 for i in below], wide, 0.02, 0.95), strict=True):
        x, y = ends[i]
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.8}  # lines pass below these labels
        _write(ax, lines[i], labels[i], [(x, y), (place, row)], (place, row), box)


def _write(
    ax: Axes,
    line: Line2D,
    label: str,
    leader: list[tuple[float, float]],
    place: tuple[float, float],
    box: dict[str, Any] | None,
) -> None:
    path = Line2D(*zip(*leader, strict=True), transform=ax.transAxes, color=line.get_color(), lw=0.5, clip_on=False)
    path.set_in_layout(False)
    ax.add_artist(path)
    ax.text(*place, label, transform=ax.transAxes, size=POINTS, va="center", ha="left", bbox=box)


def plain_ticks(axis: Axis, places: Iterable[SupportsFloat]) -> None:
    """Ticks at these places alone, written as plain numbers, on an axis of any scale."""
    axis.set_major_locator(FixedLocator([float(place) for place in places]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def log_ticks(axis: Axis, low: float, high: float, most: int = 4) -> None:
    """Ticks of a logarithmic axis at 1, 2 and 5 times powers of ten, at powers alone where those are too many.

    >>> [f"{tick:g}" for tick in ticks_between(0.3, 4)], [f"{tick:g}" for tick in ticks_between(0.01, 30)]
    (['0.5', '1', '2'], ['0.01', '0.1', '1', '10'])
    >>> [f"{tick:g}" for tick in ticks_between(0.61, 0.93)]
    ['0.61', '0.93']
    """
    plain_ticks(axis, ticks_between(low, high, most))


def ticks_between(low: float, high: float, most: int = 4) -> list[float]:
    """The places of `log_ticks`; both ends, rounded, where fewer than two lie between them."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1,)):
        ticks = [digit * 10.0**decade for decade in decades for digit in digits if low <= digit * 10.0**decade <= high]
        if 2 <= len(ticks) <= most:
            return ticks
    if len(ticks) > most:
        return [ticks[at] for at in thinned(len(ticks), most)]
    return [float(f"{end:.2g}") for end in (low, high)]


def around_one(ticks: Sequence[float], factor: float) -> list[float]:
    """Ticks at least a factor apart, from 1 outwards."""
    kept = [1.0]
    for tick in sorted(ticks, key=lambda tick: abs(math.log(tick))):
        if all(max(tick / one, one / tick) >= factor for one in kept):
            kept.append(tick)
    return sorted(kept)


def whole_numbers(ax: Axes, most: int = 6) -> None:
    """Ticks of the x axis at whole numbers only."""
    ax.xaxis.set_major_locator(MaxNLocator(nbins=most, integer=True, min_n_ticks=1))


def _visible_end(ax: Axes, line: Line2D) -> tuple[float, float]:
    """Point at which the line ends or leaves through the bottom of the axes, in axes coordinates."""
    points = np.column_stack([np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)])
    with np.errstate(divide="ignore", invalid="ignore"):
        x, y = (ax.transData + ax.transAxes.inverted()).transform(points).T
    y = np.nan_to_num(y, nan=-1.0, neginf=-1.0)  # zeros have no place on a logarithmic axis
    below = np.flatnonzero(y < 0)
    if len(below) == 0:
        return float(x[-1]), float(y[-1])
    first = below[0]
    if first == 0:
        return float(x[0]), 0.0
    part = y[first - 1] / (y[first - 1] - y[first])
    return float(x[first - 1] + part * (x[first] - x[first - 1])), 0.0
