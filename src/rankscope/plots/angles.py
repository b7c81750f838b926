"""Angle maps: how far embedded tokens or rows of a matrix point apart (Fig. 3b, 8, 14)."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, pi
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from rankscope.errors import OptionError
from rankscope.plots.labels import short_names, whole_numbers, wrapped
from rankscope.plots.style import figure, styled

if TYPE_CHECKING:
    from rankscope.measure.embedding import EmbeddingReport


def angle_maps(maps: Mapping[str, Float[np.ndarray, "_ _"]], *, axis: str = "token", columns: int = 2) -> Figure:
    """Heat maps of angles on one scale from 0 (dark) to π/2 (light); angles of zero vectors are left blank.

    Args:
        maps: title → square matrix of angles in radians.
        axis: what rows and columns count.
        columns: maps side by side.

    Raises:
        OptionError: no map, or one that is not square.
    """
    if not maps:
        raise OptionError("maps is empty: give at least one matrix of angles.")
    for title, angles in maps.items():
        if angles.ndim != 2 or angles.shape[0] != angles.shape[1]:
            raise OptionError(f"map {title!r} must be square, got shape {angles.shape}.")
    columns = min(columns, len(maps))
    lines = ceil(len(maps) / columns)
    square = 2.62 / columns - 0.32  # what labels and the colour bar leave of the column
    with styled():
        fig, axes = figure(lines, columns, height=lines * (square + 0.52))
        for ax, (title, angles) in zip(axes, maps.items(), strict=False):
            image = _draw(ax, wrapped(title, columns), angles, axis)
        for ax in axes[len(maps) :]:
            ax.set_axis_off()
        bar = fig.colorbar(image, ax=axes, pad=0.03, aspect=22 * lines)
        bar.set_ticks([0, pi / 4, pi / 2], labels=["0", "π/4", "π/2"])
        bar.set_label("angle (rad)")
        bar.outline.set_linewidth(0.4)
    return fig


def embedding_angles(report: EmbeddingReport, *, matrix: str = "corpus") -> Figure:
    """Angle maps of the embedding matrices of a report, one per checkpoint.

    Raises:
        OptionError: the report has no such matrix.
    """
    rows = [row for row in report.rows if row.matrix == matrix]
    if not rows:
        raise OptionError(f"the report has no {matrix!r} matrix: it has {sorted({r.matrix for r in report.rows})}.")
    axis = "token id" if matrix == "vocabulary" else "token"
    names = short_names([row.model for row in rows])
    return angle_maps({name: row.angles for name, row in zip(names, rows, strict=True)}, axis=axis)


def _draw(ax: Axes, title: str, angles: np.ndarray, axis: str) -> AxesImage:
    image = ax.imshow(np.ma.masked_invalid(angles), vmin=0, vmax=pi / 2)
    ax.set_title(title)
    ax.set_xlabel(axis)
    ax.set_ylabel(axis)
    whole_numbers(ax, most=3)
    ax.set_yticks(ax.get_xticks())
    size = len(angles)
    ax.set_xlim(-0.5, size - 0.5)
    ax.set_ylim(size - 0.5, -0.5)
    ax.spines[:].set_visible(False)
    return image
