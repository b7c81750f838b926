"""Embedding matrices: spectra (Fig. 2a, 3a), leading directions (Fig. 2b, c), angles between tokens (Fig. 3b, 14)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from rankscope.errors import OptionError
from rankscope.plots.labels import sequence_colours, short_names, whole_numbers, wrapped
from rankscope.plots.style import MARKS, REST, ROW, figure, styled

if TYPE_CHECKING:
    from rankscope.measure.embedding import EmbeddingReport, EmbeddingSpectrum

FLOOR = 1e-7
"""Relative singular values below this are rounding of float32 embeddings."""
LOWEST = 1e-5
"""Lowest end of the axis: one steep line shall not press the others together."""
FEW = 8
"""Above so many matrices a vocabulary is drawn only where there is no corpus."""
TWO_COLUMNS = 25
"""Longest name of a line beside which a legend has room for another."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*", "d", "8")
DASHES: dict[str, Any] = {"series": "-", "text": (0, (4, 1.5)), "image": (0, (1, 1))}
"""Dash of every modality."""


def embedding_spectra(report: EmbeddingReport, *, inputs_only: bool | None = None, share: bool | None = None) -> Figure:
    """Relative singular values of the embedding matrices of a report; dashes tell modalities, markers models.

    Args:
        report: what was measured.
        inputs_only: leave out vocabularies of models whose embedded corpus is drawn; None does so above `FEW` matrices.
        share: count singular values as shares of the most there can be; None does so where matrices differ in that.
    """
    rows = list(report.rows)
    corpora = {row.model for row in rows if row.matrix == "corpus"}
    if inputs_only or (inputs_only is None and len(rows) > FEW):
        rows = [row for row in rows if row.matrix == "corpus" or row.model not in corpora]
    rows.sort(key=lambda row: list(DASHES).index(row.modality))
    by_share = len({row.largest_rank for row in rows}) > 1 if share is None else share
    names = _line_names(rows)
    legend_columns = 1 if len(rows) <= 3 or max(map(len, names)) > TWO_COLUMNS else 2
    legend_lines = ceil(len(rows) / legend_columns)
    with styled():
        fig, (ax,) = figure(height=REST + ROW + 0.135 * max(legend_lines - 3, 0))
        for i, (row, name) in enumerate(zip(rows, names, strict=True)):
            # rounding of the stored numbers is not a spectrum
            shown = row.relative[row.relative > FLOOR]
            index = np.arange(1, len(shown) + 1) / (row.largest_rank if by_share else 1)
            start, every = (i * len(shown) // 40) % max(len(shown) // 6, 1), max(len(shown) // 6, 1)
            ax.plot(index, shown, label=name, markevery=(start, every), gid=name, **_look(rows, i))
        smallest = min((float(row.relative[row.relative > FLOOR].min(initial=1.0)) for row in rows), default=1.0)
        ax.set_yscale("log")
        ax.set_ylim(max(LOWEST, smallest / 1.5), 1.5)
        ax.set_xlim(0, 1 if by_share else None)
        ax.set_xlabel(r"index $j$ / smaller side of the matrix" if by_share else "index $j$ of the singular value")
        ax.set_ylabel(r"$\sigma_j / \sigma_1$ of the embedding")
        fig.legend(loc="outside lower center", ncols=legend_columns)
    return fig


def _line_names(rows: Sequence[EmbeddingSpectrum]) -> list[str]:
    """Model and matrix of every line; the modality, where there are several."""
    short = short_names([row.model for row in rows])
    several = len({row.modality for row in rows}) > 1
    names = []
    for name, row in zip(short, rows, strict=True):
        what = f"{row.modality}, {row.matrix}" if several and row.matrix == "vocabulary" else row.matrix
        names.append(f"{name}, {row.modality if several and row.matrix == 'corpus' else what}")
    return names


def _look(rows: Sequence[EmbeddingSpectrum], position: int) -> dict[str, Any]:
    """Dash of the row's modality, colour and marker of its own; vocabularies have open markers."""
    colour = MARKS[position].colour if len(rows) <= len(MARKS) else sequence_colours(len(rows))[position]
    face = "white" if rows[position].matrix == "vocabulary" else colour
    return {
        "color": colour,
        "linestyle": DASHES[rows[position].modality],
        "marker": MARKERS[position % len(MARKERS)],
        "markerfacecolor": face,
        "linewidth": 1.0,
    }


def embedding_projection(report: EmbeddingReport, *, matrix: str = "corpus", columns: int = 2) -> Figure:
    """Embedded tokens on the two leading singular vectors, coloured by token id or patch mean.

    Raises:
        OptionError: the report has no such matrix.
    """
    rows = [row for row in report.rows if row.matrix == matrix]
    if not rows:
        raise OptionError(f"the report has no {matrix!r} matrix: it has {sorted({r.matrix for r in report.rows})}.")
    columns = min(columns, len(rows))
    lines = ceil(len(rows) / columns)
    with styled():
        fig, axes = figure(lines, columns, height=lines * (REST + ROW))
        names = short_names([row.model for row in rows])
        for ax, row, name in zip(axes, rows, names, strict=False):
            shown = row.projection
            x, y = shown.points.T
            dots = ax.scatter(x, y, c=shown.colour, s=3, linewidths=0, rasterized=True)
            ax.set_title(wrapped(name, columns))
            ax.set_xlabel("along $v_1$")
            ax.set_ylabel("along $v_2$")
            bar = fig.colorbar(dots, ax=ax, location="right" if columns == 1 else "bottom", aspect=25, pad=0.03)
            bar.set_label(shown.colour_name + (" / s.d." if shown.colour_name == "patch mean" else ""))
            bar.outline.set_linewidth(0.4)
        for ax in axes[len(rows) :]:
            ax.set_axis_off()
    return fig


def angle_maps(
    maps: Mapping[str, Float[np.ndarray, "_ _"]], *, axis: str = "token", columns: int = 2, least: float = 0.0
) -> Figure:
    """Heat maps of angles on one scale from ``least`` (dark) to 90° (light); angles of zero vectors are left blank.

    Args:
        maps: title → square matrix of angles in radians.
        axis: what rows and columns count.
        columns: maps side by side.
        least: angle in degrees from which on smaller ones look alike.

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
    square = 2.2 / columns  # what labels and the colour bar leave of the column
    alike = len({len(angles) for angles in maps.values()}) == 1
    titles = [wrapped(title, columns) for title in maps]
    extra = 0.13 * max(title.count("\n") for title in titles)
    with styled():
        fig, axes = figure(lines, columns, height=lines * (square + 0.27 + extra) + 0.35)
        for position, (ax, title, angles) in enumerate(zip(axes, titles, maps.values(), strict=False)):
            image = _draw(ax, title, angles, least)
            if position % columns == 0:
                ax.set_ylabel(axis)
            elif alike:
                ax.tick_params(labelleft=False)
            if position + columns >= len(maps):
                ax.set_xlabel(axis)
            elif alike:
                ax.tick_params(labelbottom=False)
        for ax in axes[len(maps) :]:
            ax.set_axis_off()
        bar = fig.colorbar(image, ax=axes, pad=0.03, aspect=14 * lines, extend="min" if least else "neither")
        bar.set_ticks(np.linspace(least, 90, 4).tolist())
        bar.set_label("angle (degrees)")
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


def _draw(ax: Axes, title: str, angles: np.ndarray, least: float) -> AxesImage:
    # a map may have more rows than its place has dots: those are averaged
    shown = np.ma.masked_invalid(np.rad2deg(angles))
    image = ax.imshow(shown, vmin=least, vmax=90, interpolation="antialiased", interpolation_stage="data")
    ax.set_title(title)
    whole_numbers(ax, most=3)
    ax.set_yticks(ax.get_xticks())
    size = len(angles)
    ax.set_xlim(-0.5, size - 0.5)
    ax.set_ylim(size - 0.5, -0.5)
    ax.spines[:].set_visible(False)
    return image
