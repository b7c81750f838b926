"""The Chebyshev embedding in its first two dimensions (Fig. 15)."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy import ndarray

from rankscope.errors import OptionError
from rankscope.plots.style import figure, styled


def embedded_line(values: Float[ndarray, " points"], embedded: Mapping[int, Float[ndarray, "points 2"]]) -> Figure:
    """The embedded number line in two dimensions, one panel per rank of the embedding, coloured by the number.

    Args:
        values: the numbers.
        embedded: rank → two coordinates of each number.

    Raises:
        OptionError: no rank.
    """
    if not embedded:
        raise OptionError("embedded is empty: give at least one rank.")
    columns = min(2, len(embedded))
    lines = ceil(len(embedded) / columns)
    with styled():
        fig, axes = figure(lines, columns, height=0.65 + 1.3 * lines)
        for ax, (rank, points) in zip(axes, embedded.items(), strict=False):
            x, y = points.T
            dots = ax.scatter(x, y, c=values, s=1.2, linewidths=0, rasterized=True, gid=f"rank-{rank}")
            ax.set_title(f"rank {rank}")
            ax.xaxis.set_major_locator(MaxNLocator(3))
            ax.yaxis.set_major_locator(MaxNLocator(3))
        for ax in axes[len(embedded) :]:
            ax.set_axis_off()
        for position, ax in enumerate(axes[: len(embedded)]):
            if position % columns == 0:
                ax.set_ylabel("second coordinate")
            if position + columns >= len(embedded):
                ax.set_xlabel("first coordinate")
        bar = fig.colorbar(dots, ax=axes, location="bottom", aspect=45, pad=0.03)
        bar.set_label("number $x$")
        bar.outline.set_linewidth(0.4)
    return fig
