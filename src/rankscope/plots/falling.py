"""Singular values over the largest, by index: the drawing that figures of weights and of streams share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from rankscope.plots.labels import label_ends, sequence_colours, thinned, whole_numbers
from rankscope.plots.style import MARKS

START_COLOUR = "#9a9a9a"
"""Colour of matrices as they were drawn at random."""


def draw_spectra(
    ax: Axes,
    spectra: Sequence[np.ndarray],
    labels: Sequence[str],
    ids: Sequence[str],
    *,
    floor: float,
    most: int,
    height: float,
    starts: Sequence[np.ndarray] = (),
) -> None:
    """Draw σ_j/σ_1 against j, a line each, first ones dark; markers tell up to six apart without colour.

    Args:
        ax: where.
        spectra: relative singular values.
        labels: one per line.
        ids: SVG ids of the lines.
        floor: values below are rounding, and out of sight.
        most: lines that are labelled.
        height: of the axes in inches, about.
        starts: those before training, grey and dashed.
    """
    grey: dict[str, Any] = {"color": START_COLOUR, "linestyle": "--", "linewidth": 0.7}
    before = [line for sigma in starts for line in ax.plot(np.arange(1, len(sigma) + 1), sigma, **grey)][:1]
    few, lines = len(spectra) <= len(MARKS), []
    for at, (sigma, colour) in enumerate(zip(spectra, sequence_colours(len(spectra)), strict=True)):
        look: dict[str, Any] = {"color": colour}
        if few:
            mark = MARKS[at]
            look = {**mark.kwargs(), **look, "markerfacecolor": colour if mark.filled else "white"}
            look |= {"markevery": (0.04 * at, 0.24), "markersize": 3}
        lines += ax.plot(np.arange(1, len(sigma) + 1), sigma, gid=ids[at], **look)
    ax.set_yscale("log")
    bottom = max(floor, min(float(sigma[sigma > 0].min(initial=1.0)) for sigma in (*starts, *spectra)) / 1.5)
    ax.set_ylim(bottom, 1.5)
    ax.set_xlim(1, max(2, *(min(len(sigma), int((sigma > bottom).sum()) + 1) for sigma in spectra)))
    whole_numbers(ax)
    ax.set_xlabel("index $j$ of the singular value")
    if few and len(lines) > 1:
        ax.legend([*lines, *before], [*labels, *(["before training"] * len(before))], loc="best")
    else:
        if before:
            ax.annotate("grey, dashed: before training", (0.03, 0.04), xycoords="axes fraction", size=7)
        shown = thinned(len(lines), most)
        label_ends(ax, [lines[at] for at in shown], [labels[at] for at in shown], height=height)
