"""Fig. 7, 15: embeddings of single numbers, trained and made by formula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy import ndarray
from torch import Tensor

from rankscope.checkpoints import Checkpoint
from rankscope.errors import DataError
from rankscope.families import FAMILIES
from rankscope.numerics import eps_rank
from rankscope.numerics.embedding import chebyshev_embedding
from rankscope.plots.style import MARKS, figure, styled
from rankscope.train.initial import initial_checkpoints
from rankscope_paper.figures.recipe import BOLT, REFERENCE, T5, Drawn, Recipe, Settings, labels, listed

LIMIT = 15.0
POINTS = 512
SHOWN = 3
"""Coordinates and directions drawn."""
RANKS, WIDTH, LINE = (1, 2, 4, 8, 16, 32), 768, 4096
"""Of Fig. 15, as in the paper."""


@partial(
    Recipe,
    id="7",
    title="Quantised and continuous embeddings",
    shows="a drawing: bins that are looked up, beside a function that is trained",
    takes=("model",),
    models=REFERENCE,
    most_models=2,
    published=(T5, BOLT),
)
def fig7(settings: Settings) -> Drawn:
    """Draw a quantised and a continuous embedding of the number line."""
    checkpoints = settings.checkpoints()
    names = labels([one.source for one in checkpoints])
    shown, parts, ranks = [], [], []
    with initial_checkpoints(checkpoints) as initial:
        for checkpoint in checkpoints:
            one, rank, width = _embedded(checkpoint, names[checkpoint.source])
            said = f"{checkpoint.source} {rank} of {width}"
            if checkpoint.source in initial:
                before, first, _ = _embedded(initial[checkpoint.source], names[checkpoint.source])
                one, said = replace(one, start=before.projections), f"{said} ({first} before training)"
            shown.append(one)
            ranks.append(said)
    for one in shown:
        parts += [_frame(one, "coordinate", one.coordinates), _frame(one, "direction", one.projections)]
        parts += [] if one.start is None else [_frame(one, "direction before training", one.start)]
    caption = (
        f"φ(x) along the number line: its first {SHOWN} coordinates, and its projections on its {SHOWN} "
        "leading right singular vectors, the same below before training where the start is known. "
        "A quantised embedding looks a trained vector up for each bin of values; a "
        "continuous one is a trained network, here of patches whose values all are x. 0.1-ranks over the line: "
        f"{'; '.join(ranks)}. Measured on {listed(checkpoints)}; {POINTS} values at most, evenly spaced; no "
        "random choice enters."
    )
    return Drawn(embedded_values(shown), pd.concat(parts, ignore_index=True), caption)


@partial(
    Recipe,
    id="15",
    title="Chebyshev embeddings in two dimensions",
    shows="the embedded line winds more as the rank grows",
    takes=("seed",),
)
def fig15(settings: Settings) -> Drawn:
    """Draw Chebyshev embeddings of several ranks in their first two dimensions."""
    numbers = torch.linspace(-LIMIT, LIMIT, LINE, dtype=torch.float64)
    points = {
        rank: chebyshev_embedding(numbers, WIDTH, rank, limit=LIMIT, seed=settings.seed)[:, :2].numpy()
        for rank in RANKS
    }
    parts = [
        pd.DataFrame({"rank": rank, "value": numbers.numpy(), "first": xy[:, 0], "second": xy[:, 1]})
        for rank, xy in points.items()
    ]
    caption = (
        f"{LINE} numbers from −{LIMIT:g} to {LIMIT:g} in the first two of {WIDTH} dimensions of Chebyshev "
        f"embeddings, X = Σ u_j T_j(x/{LIMIT:g}) over j = 1 … k with random orthonormal u_j, for ranks k = "
        f"{', '.join(map(str, RANKS))}. Computed by the formula of App. H; no checkpoint; seed {settings.seed}."
    )
    return Drawn(
        embedded_line(numbers.numpy(), points), pd.concat(parts, ignore_index=True), caption, seed=settings.seed
    )


def embed_numbers(checkpoint: Checkpoint) -> tuple[Float[Tensor, " points"], Float[Tensor, "points d_model"], str]:
    """Numbers, their embedded vectors, and ``quantised`` (looked up) or ``continuous`` (computed).

    Raises:
        DataError: the model embeds no single numbers.
    """
    family = checkpoint.family
    if family.number_line is None:
        able = " and ".join(name for name, one in FAMILIES.items() if one.number_line is not None)
        raise DataError(f"{checkpoint.source} is of family {family.name}: figure 7 takes {able}.")
    values, x = family.number_line(checkpoint.module(), checkpoint.config)
    return values, x.float(), "quantised" if family.strategy == "quantisation" else "continuous"


def _embedded(checkpoint: Checkpoint, name: str) -> tuple[EmbeddedValues, int, int]:
    """Curves of a checkpoint, its 0.1-rank over the line, and its width."""
    values, x, kind = embed_numbers(checkpoint)
    rank = int(eps_rank(torch.linalg.svdvals(x.double()), 0.1))
    return _shown(name, values, x, kind), rank, x.shape[1]


def _shown(name: str, values: Tensor, x: Tensor, kind: str) -> EmbeddedValues:
    wide = x.double()
    _, _, vh = torch.linalg.svd(wide, full_matrices=False)
    signs = torch.sign(vh[:SHOWN].gather(1, vh[:SHOWN].abs().argmax(1, keepdim=True)))
    projections = wide @ (vh[:SHOWN] * signs).T
    coordinates = wide[:, :SHOWN]
    picked = torch.linspace(0, len(values) - 1, min(POINTS, len(values))).round().long()
    return EmbeddedValues(
        name,
        kind,
        values[picked].double().numpy(),
        (coordinates / coordinates.abs().max())[picked].numpy(),
        (projections / projections.abs().max())[picked].numpy(),
    )


def _frame(one: EmbeddedValues, what: str, columns: np.ndarray) -> pd.DataFrame:
    parts = [
        pd.DataFrame(
            {"model": one.name, "kind": one.kind, what: i + 1, "x": one.values, "relative_value": columns[:, i]}
        )
        for i in range(columns.shape[1])
    ]
    return pd.concat(parts, ignore_index=True)


@dataclass(frozen=True)
class EmbeddedValues:
    """An embedding along the number line.

    Attributes:
        name: of the model.
        kind: ``quantised`` or ``continuous``.
        values: numbers x.
        coordinates: some coordinates of φ(x), relative to the largest of all.
        projections: φ(x) on its leading right singular vectors, relative to the largest of all.
        start: the same before training, where it is known.
    """

    name: str
    kind: str
    values: Float[ndarray, " points"]
    coordinates: Float[ndarray, "points _"]
    projections: Float[ndarray, "points _"]
    start: Float[ndarray, "points _"] | None = None


def embedded_values(models: Sequence[EmbeddedValues]) -> Figure:
    """One column per model: coordinates of φ(x) against x, its leading projections, and those before training."""
    with styled():
        rows = 2 if all(model.start is None for model in models) else 3
        fig, axes = figure(rows, len(models), sharex=True, sharey="row")
        for column, model in enumerate(models):
            dotted = model.kind == "quantised"
            curves = {"coordinate": model.coordinates, "direction": model.projections, "start": model.start}
            for ax, (what, drawn) in zip(axes[column :: len(models)], curves.items(), strict=False):
                if drawn is not None:
                    _lines(ax, model.values, drawn, dotted, what)
            axes[column].set_title(f"{model.name},\n{model.kind}")
            axes[column - len(models)].set_xlabel("number $x$")
        titles = (r"$\phi_i(x)$", r"$v_j^{\top}\phi(x)$", "$v_j^{\\top}\\phi(x)$,\nbefore training")
        for ax, title in zip(axes[:: len(models)], titles, strict=False):
            ax.set_ylabel(title)
        fig.align_ylabels(axes[:: len(models)])
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


def embedded_line(values: Float[ndarray, " points"], embedded: Mapping[int, Float[ndarray, "points 2"]]) -> Figure:
    """The embedded number line in two dimensions, one panel per rank of the embedding, coloured by the number.

    Args:
        values: the numbers.
        embedded: rank → two coordinates of each number.
    """
    columns = min(2, len(embedded))
    lines = ceil(len(embedded) / columns)
    with styled():
        fig, axes = figure(lines, columns, height=0.6 + 1.15 * lines)
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
