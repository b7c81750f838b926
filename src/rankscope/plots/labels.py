"""Labels written at the ends of lines, in place of a legend."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from rankscope.plots.style import SEQUENCE


def sequence_colours(count: int) -> list[str]:
    """Colours of ``count`` ordered lines, dark to light; the lightest is still readable on white."""
    return [to_hex(colormaps[SEQUENCE](x)) for x in np.linspace(0.0, 0.78, max(count, 1))[:count]]


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


def label_ends(ax: Axes, lines: Sequence[Line2D], labels: Sequence[str], *, height: float, size: float = 7.0) -> None:
    """Write each line's label where the line ends, moved apart where labels would meet.

    Lines that reach the right edge are labelled right of the axes; lines that leave through the bottom are
    labelled there. Limits and scales must be final.

    Args:
        ax: axes of the lines.
        lines: lines whose last point inside the limits is labelled.
        labels: one per line.
        height: of the axes in inches, about; it sets how many labels fit.
        size: of the text in points.
    """
    ends = [_visible_end(ax, line) for line in lines]
    row = 1.15 * size / (72 * height)
    right = [i for i, (x, _) in enumerate(ends) if x > 0.9]
    for i, place in zip(right, spread([ends[i][1] for i in right], row, 0.01, 0.99), strict=True):
        x, y = ends[i]
        _write(ax, lines[i], labels[i], [(x, y), (1.01, y), (1.045, place)], (1.06, place), size)
    wide = 0.022 * max((len(label) for label in labels), default=0)
    below = [i for i, (x, _) in enumerate(ends) if x <= 0.9]
    for i, place in zip(below, spread([ends[i][0] + 0.02 for i in below], wide, 0.02, 0.95), strict=True):
        x, y = ends[i]
        _write(ax, lines[i], labels[i], [(x, y), (place, y + row / 2)], (place, y + row / 2), size)


def _write(
    ax: Axes, line: Line2D, label: str, leader: list[tuple[float, float]], place: tuple[float, float], size: float
) -> None:
    path = Line2D(*zip(*leader, strict=True), transform=ax.transAxes, color=line.get_color(), lw=0.5, clip_on=False)
    path.set_in_layout(False)
    ax.add_artist(path)
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.8}
    ax.text(*place, label, transform=ax.transAxes, size=size, va="center", ha="left", bbox=box)


def whole_numbers(ax: Axes, most: int = 6) -> None:
    """Ticks of the x axis at whole numbers only."""
    ax.xaxis.set_major_locator(MaxNLocator(nbins=most, integer=True, min_n_ticks=1))


def _visible_end(ax: Axes, line: Line2D) -> tuple[float, float]:
    """Last point of the line inside the limits, in axes coordinates."""
    points = np.column_stack([np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)])
    fractions = (ax.transData + ax.transAxes.inverted()).transform(points)
    inside = np.isfinite(fractions).all(1) & (fractions[:, 1] >= -1e-9) & (fractions[:, 1] <= 1 + 1e-9)
    if not inside.any():
        return 1.0, 0.0
    x, y = fractions[np.flatnonzero(inside)[-1]]
    return float(x), float(y)
