"""Embedding strategies side by side: angle maps of two signals, and spectra below (Fig. 8)."""

from __future__ import annotations

from collections.abc import Mapping
from math import pi
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure, FigureBase

from rankscope.errors import OptionError
from rankscope.plots.labels import short_names
from rankscope.plots.style import MARKS, figure, styled

if TYPE_CHECKING:
    from rankscope.measure.embedding import EmbeddingSpectrum

FLOOR = 1e-7
"""Relative singular values below this are rounding of float32 embeddings."""
_NAMES = {"sine": "sinusoids", "noise": "white noise"}


def strategies(rows: Mapping[str, Mapping[str, EmbeddingSpectrum]]) -> Figure:
    """One row of angle maps per signal, one column per model, and one panel of spectra per signal.

    Args:
        rows: signal → model → its embedded corpus; the same models for every signal.

    Raises:
        OptionError: no signal, no model, or not the same models.
    """
    models = list(next(iter(rows.values()), {}))
    if not models or any(list(found) != models for found in rows.values()):
        raise OptionError("rows must hold the same models for every signal, at least one.")
    names = short_names(models)
    side = 2.75 / len(models)
    with styled():
        fig, _ = figure(height=len(rows) * side + 2.9)
        fig.clear()
        grid = fig.add_gridspec(2, 1, height_ratios=(len(rows) * side + 0.75, 2.15))
        above, below = fig.add_subfigure(grid[0]), fig.add_subfigure(grid[1])
        axes = above.subplots(len(rows), len(models), squeeze=False)
        for line, (signal, found) in zip(axes, rows.items(), strict=True):
            for ax, model, name in zip(line, models, names, strict=True):
                image = ax.imshow(np.ma.masked_invalid(found[model].angles), vmin=0, vmax=pi / 2)
                ax.set(xticks=[], yticks=[])
                ax.spines[:].set_visible(False)
                if found is next(iter(rows.values())):
                    ax.set_title(name.removeprefix("bundled-"))
            line[0].set_ylabel(_NAMES.get(signal, signal))
        bar = above.colorbar(image, ax=axes, location="bottom", aspect=45, pad=0.03)
        bar.set_ticks([0, pi / 4, pi / 2], labels=["0", "π/4", "π/2"])
        bar.set_label("angle between tokens (rad)")
        bar.outline.set_linewidth(0.4)
        _spectra(below, rows, names)
    return fig


def _spectra(below: FigureBase, rows: Mapping[str, Mapping[str, EmbeddingSpectrum]], names: list[str]) -> None:
    axes = below.subplots(1, len(rows), sharey=True, squeeze=False)[0]
    smallest = 1.0
    for ax, (signal, found) in zip(axes, rows.items(), strict=True):
        for i, (name, row) in enumerate(zip(names, found.values(), strict=True)):
            shown = row.relative[row.relative > FLOOR]
            smallest = min(smallest, float(shown.min(initial=1.0)))
            place = np.arange(1, len(shown) + 1)
            look = MARKS[i % len(MARKS)].kwargs() | {"markevery": max(len(shown) // 6, 1)}
            ax.plot(place, shown, label=name.removeprefix("bundled-"), gid=f"{signal}: {name}", **look)
        ax.set_title(_NAMES.get(signal, signal))
        ax.set_yscale("log")
        ax.set_xlabel("index $j$")
    axes[0].set_ylim(max(FLOOR, smallest / 1.5), 1.5)
    axes[0].set_ylabel(r"$\sigma_j / \sigma_1$")
    handles, labels = axes[0].get_legend_handles_labels()
    below.legend(handles, labels, loc="outside lower center", ncols=min(len(names), 4))
