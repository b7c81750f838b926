"""Embeddings as functions of a number: coordinates and leading directions of φ(x) against x (Fig. 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy import ndarray

from rankscope.errors import OptionError
from rankscope.plots.style import MARKS, figure, styled


@dataclass(frozen=True)
class EmbeddedValues:
    """An embedding along the number line.

    Attributes:
        name: of the model.
        kind: ``quantised`` or ``continuous``.
        values: numbers x.
        coordinates: some coordinates of φ(x), relative to the largest of all.
        projections: φ(x) on its leading right singular vectors, relative to σ_1.
    """

    name: str
    kind: str
    values: Float[ndarray, " points"]
    coordinates: Float[ndarray, "points _"]
    projections: Float[ndarray, "points _"]


def embedded_values(models: Sequence[EmbeddedValues]) -> Figure:
    """One column per model: above, coordinates of φ(x) against x, below its leading projections.

    Raises:
        OptionError: no model.
    """
    if not models:
        raise OptionError("models is empty: give at least one embedding.")
    with styled():
        fig, axes = figure(2, len(models), height=3.3, sharex=True, sharey="row")
        for column, model in enumerate(models):
            above, below = axes[column], axes[len(models) + column]
            dotted = model.kind == "quantised"
            _lines(above, model.values, model.coordinates, dotted, "coordinate")
            _lines(below, model.values, model.projections, dotted, "direction")
            above.set_title(f"{model.name}, {model.kind}")
            below.set_xlabel("number $x$")
        axes[0].set_ylabel(r"$\phi_i(x)$ / largest")
        axes[len(models)].set_ylabel(r"$v_j^{\top}\phi(x)$ / largest")
        count = max(one.projections.shape[1] for one in models)
        handles = [Line2D([], [], **(mark.kwargs() | {"markerfacecolor": mark.colour})) for mark in MARKS[:count]]
        names = [f"$i, j = {i + 1}$" if i == 0 else f"{i + 1}" for i in range(count)]
        fig.legend(handles, names, loc="outside lower center", ncols=len(names))
    return fig


def _lines(ax: Axes, x: ndarray, values: ndarray, dotted: bool, what: str) -> None:
    ax.axhline(0, color="#d5dbe1", linewidth=0.6, zorder=0)
    for i, (column, mark) in enumerate(zip(values.T, MARKS, strict=False)):
        gid = f"{what}-{i + 1}"
        if dotted:  # a vocabulary is a set of points: no line may pretend what lies between them
            look: dict[str, Any] = {"color": mark.colour, "linestyle": "none", "marker": mark.marker, "markersize": 1.1}
            ax.plot(x, column, gid=gid, markeredgewidth=0, rasterized=True, **look)
        else:
            ax.plot(x, column, gid=gid, color=mark.colour, linestyle=mark.dash)
