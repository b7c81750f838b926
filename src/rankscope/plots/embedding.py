"""Embedding matrices: their spectra side by side (Fig. 2a, 3a) and their two leading directions (Fig. 2b, c)."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from rankscope.errors import OptionError
from rankscope.plots.labels import short_names, wrapped
from rankscope.plots.style import MARKS, figure, styled

if TYPE_CHECKING:
    from rankscope.analysis.embedding import EmbeddingReport

FLOOR = 1e-8
"""Relative singular values below this are rounding of the stored float32 embeddings."""


def embedding_spectra(report: EmbeddingReport) -> Figure:
    """Relative singular values of every embedding matrix of the report, against the index over the width."""
    with styled():
        fig, (ax,) = figure(height=2.5)
        names = short_names([row.model for row in report.rows])
        every = max(max(len(row.sigma) for row in report.rows) // 8, 1)
        for i, row in enumerate(report.rows):
            name, mark = f"{names[i]}, {row.matrix}", MARKS[i % len(MARKS)]
            index = np.arange(1, len(row.sigma) + 1)
            ax.plot(index, row.relative, label=name, markevery=every, gid=name, **mark.kwargs())
        smallest = min(float(row.relative[row.relative > 0].min(initial=1.0)) for row in report.rows)
        ax.set_yscale("log")
        ax.set_ylim(max(FLOOR, smallest / 1.5), 1.5)
        ax.set_xlim(left=0)
        ax.set_xlabel("index $j$ of the singular value")
        ax.set_ylabel(r"$\sigma_j / \sigma_1$ of the embedding")
        fig.legend(loc="outside upper left", ncols=1)
    return fig


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
        fig, axes = figure(lines, columns, height=lines * (2.4 if columns == 1 else 2.1))
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
