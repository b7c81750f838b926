"""Three claims of the paper as measurements: low-rank inputs, ranks by depth, the cost of compression (Fig. 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rankscope.checkpoints import Checkpoint
from rankscope.errors import DataError, OptionError
from rankscope.measure.spectrum import measure_spectrum
from rankscope.measure.tradeoff import Table2Report, read_table2
from rankscope.plots.labels import plain_ticks, whole_numbers
from rankscope.plots.style import MARKS, figure, styled
from rankscope_paper.figures.embedding import CORPUS, corpus_of, inputs_of, measured, measured_start
from rankscope_paper.figures.recipe import (
    BOLT,
    REFERENCE,
    T5,
    TEXT_T5,
    Drawn,
    Recipe,
    Settings,
    carried,
    labels,
    listed,
    of_modality,
)
from rankscope_paper.figures.results import MAKE_TABLE, TABLES

EPS = 0.1
METHODS = {"svd": ("SVD", "uniform-eps"), "whitened": ("whitened", "energy"), "joint": ("joint", "sensitivity")}
"""Methods of Table 2 that are drawn, the paper's and two that use calibration statistics: title, default allocation."""


@partial(
    Recipe,
    id="1",
    title="The three claims, measured",
    shows="a drawing of the argument: low-rank inputs, low-rank attention matrices, ranks that grow with depth",
    takes=("model", "data", "quick", "seed"),
    models=lambda: (*REFERENCE, *of_modality("text"), *of_modality("image")),
    most_models=6,
    data=(TABLES["bundled-bolt"],),
    make=MAKE_TABLE,
    published=(T5, BOLT, TEXT_T5, "google/vit-base-patch16-224"),
)
def fig1(settings: Settings) -> Drawn:
    """Draw embedding spectra by modality, ranks of W_Q by layer, and the cost of compression."""
    checkpoints = settings.checkpoints()
    names = labels([one.source for one in checkpoints])
    report = measured(checkpoints, CORPUS, settings, angle_items=1)
    embeddings = {names[row.model]: row.relative for row in inputs_of(report).rows}
    first = measured_start(checkpoints, (CORPUS,), settings, angle_items=1).get(CORPUS)
    start = {} if first is None else {names[row.model]: row.relative for row in inputs_of(first).rows}
    depth = {names[one.source]: ranks for one in checkpoints if (ranks := _ranks(one, settings.device))}
    if not depth:
        raise DataError(f"{listed(checkpoints)}: none has an encoder with a W_Q: figure 1 needs one.")
    table = read_table2(settings.data or carried(TABLES["bundled-bolt"], MAKE_TABLE))
    cost = _cost(table)
    spans = "; ".join(f"{name} {ranks[0]:.2f} to {ranks[-1]:.2f}" for name, ranks in depth.items())
    shares = "; ".join(f"{name} {_share(sigma)}{_before(start, name)}" for name, sigma in embeddings.items())
    caption = (
        f"(a) Relative singular values of embedding matrices (thin: before training): of {corpus_of(report)} for "
        f"series models, of the vocabulary or of generated images for the others; share above {EPS:g}: {shares}. (b) "
        f"ε-rank of W_Q over the width in every encoder layer, ε = {EPS:g}, first to last: {spans}. (c) WQL of "
        f"{table.model} over the original's after compression, against the share of the attention's numbers that is "
        f"left, ranks chosen as each method does by default. Panels a and b measured on {listed(checkpoints)}, "
        f"seed {settings.seed}; c from the saved Table 2 of {table.model}."
    )
    return Drawn(
        overview(embeddings, depth, cost, start), _frame(embeddings, depth, cost, start), caption, seed=settings.seed
    )


def _share(sigma: np.ndarray) -> str:
    return f"{(sigma > EPS).mean():.2f}"


def _before(start: Mapping[str, np.ndarray], name: str) -> str:
    return f" ({_share(start[name])} before training)" if name in start else ""


def _ranks(checkpoint: Checkpoint, device: str) -> list[float]:
    rows = measure_spectrum(checkpoint, (EPS,), ("q",), device=device).sites
    return [
        row.eps_ranks[repr(EPS)] / min(row.shape)
        for row in rows
        if row.site.stack == "encoder" and row.site.role == "self.q"
    ]


def _cost(table: Table2Report) -> dict[str, tuple[list[float], list[float]]]:
    found: dict[str, tuple[list[float], list[float]]] = {}
    for method, (title, default) in METHODS.items():
        points: dict[str, list[tuple[float, float]]] = {}
        for row in table.rows:
            size, score = row.median.reached, row.median.relative_WQL
            if row.method == method and size is not None and score is not None:
                points.setdefault(row.allocation, []).append((size, score))
        if points:
            # one line is one way to choose ranks: the better of two at each size is not a method that anyone could run
            allocation = default if default in points else next(iter(points))
            sizes, scores = zip(*sorted(points[allocation]), strict=True)
            found[title if allocation == default else f"{title}, {allocation}"] = (list(sizes), list(scores))
    return found


def _frame(
    embeddings: Mapping[str, np.ndarray],
    depth: Mapping[str, Sequence[float]],
    cost: Curves,
    start: Mapping[str, np.ndarray],
) -> pd.DataFrame:
    rows = [
        ("a", name, quantity, (j + 1) / len(sigma), float(value))
        for quantity, spectra in (("relative_sigma", embeddings), ("relative_sigma before training", start))
        for name, sigma in spectra.items()
        for j, value in enumerate(np.asarray(sigma))
    ]
    rows += [
        ("b", name, "relative_rank", float(layer), rank)
        for name, ranks in depth.items()
        for layer, rank in enumerate(ranks)
    ]
    rows += [
        ("c", method, "relative_WQL", size, score)
        for method, (sizes, scores) in cost.items()
        for size, score in zip(sizes, scores, strict=True)
    ]
    return pd.DataFrame(rows, columns=["panel", "line", "quantity", "x", "value"])


FLOOR = 1e-6
"""Relative singular values below this are rounding of the stored weights."""

Curves = Mapping[str, tuple[Sequence[float], Sequence[float]]]


def overview(
    embeddings: Mapping[str, np.ndarray],
    depth: Mapping[str, Sequence[float]],
    cost: Curves,
    start: Mapping[str, np.ndarray] | None = None,
) -> Figure:
    """One panel below the other: embedding spectra, relative ranks by layer, relative score by size.

    Args:
        embeddings: model → relative singular values of its embedding matrix, descending.
        depth: model → ε-rank over width of W_Q in each encoder layer.
        cost: method → size ratios of the attention, and the WQL there over the original's.
        start: as ``embeddings``, before training.

    Raises:
        OptionError: one of the three is empty.
    """
    for name, lines in {"embeddings": embeddings, "depth": depth, "cost": cost}.items():
        if not lines:
            raise OptionError(f"{name} is empty: nothing can be drawn.")
    # a model has the same mark in both panels
    models = dict.fromkeys((*embeddings, *depth))
    looks = {name: MARKS[i % len(MARKS)].kwargs() for i, name in enumerate(models)}
    with styled():
        fig, axes = figure(3, 1)
        _spectra(axes[0], embeddings, looks, start or {})
        _depth(axes[1], depth, looks)
        _compressed(axes[2], cost)
        for ax, letter in zip(axes, "abc", strict=True):
            ax.set_title(f"({letter})  {ax.get_title(loc='left')}")
    return fig


def _spectra(
    ax: Axes, embeddings: Mapping[str, np.ndarray], looks: Mapping[str, dict], start: Mapping[str, np.ndarray]
) -> None:
    ax.set_title("spectrum of the embedded input")
    for name, sigma in start.items():
        place, thin = np.arange(1, len(sigma) + 1) / len(sigma), {"marker": "", "linewidth": 0.5, "zorder": 0}
        ax.plot(place[sigma > FLOOR], sigma[sigma > FLOOR], gid=f"start: {name}", **(looks[name] | thin))
    for name, sigma in embeddings.items():
        kept = sigma[sigma > FLOOR]
        place = np.arange(1, len(kept) + 1) / len(sigma)
        ax.plot(place, kept, label=name, gid=f"embedding: {name}", markevery=max(len(kept) // 7, 1), **looks[name])
    ax.set_yscale("log")
    ax.set_xlim(0, 1)
    ax.set_ylim(top=1.5)
    ax.set_xlabel("index $j$ / width $d$")
    ax.set_ylabel(r"$\sigma_j / \sigma_1$")
    note = "thin: before training" if start else None
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), title=note, title_fontsize=7, alignment="left")


def _depth(ax: Axes, depth: Mapping[str, Sequence[float]], looks: Mapping[str, dict]) -> None:
    ax.set_title("rank of $W_Q$ by layer")
    for name, ranks in depth.items():
        ax.plot(range(len(ranks)), ranks, gid=f"depth: {name}", **looks[name])
    ax.set_ylim(0, 1)
    ax.margins(x=0.05)
    whole_numbers(ax)
    ax.set_xlabel("encoder layer")
    ax.set_ylabel(f"{EPS:g}-rank / $d$")


def _compressed(ax: Axes, cost: Curves) -> None:
    ax.set_title("accuracy after compression")
    for mark, (method, (sizes, scores)) in zip(MARKS, cost.items(), strict=False):
        ax.plot(sizes, scores, label=method, gid=f"cost: {method}", **mark.kwargs())
    ax.axhline(1.0, color="#d5dbe1", linewidth=0.6, zorder=0)
    ax.set_xscale("log")
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    plain_ticks(ax.xaxis, (0.05, 0.1, 0.2, 0.5, 1.0))
    plain_ticks(ax.yaxis, [tick for tick in (1, 1.2, 1.5, 2, 3, 5, 10) if low <= tick <= high])
    ax.set_xlabel("size ratio of the attention")
    ax.set_ylabel("WQL / original")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
