"""Fig. 2a, 2b, 2c, 3b: embedding matrices measured on checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rankscope.checkpoints import Checkpoint, list_bundled, list_packaged
from rankscope.errors import DataError
from rankscope.io import codec
from rankscope.measure.embedding import EmbeddingReport, EmbeddingSpectrum, measure_embedding
from rankscope.numerics import angle_matrix
from rankscope.plots import angle_maps, embedding_projection
from rankscope.plots.style import MARKS, figure, styled
from rankscope.series.signals import TITLES
from rankscope.train.initial import initial_checkpoints
from rankscope_paper.figures.recipe import (
    BOLT,
    REFERENCE,
    T5,
    TEXT_T5,
    Drawn,
    Recipe,
    Settings,
    described,
    labels,
    listed,
    of_series,
    sigma_frame,
    text_model,
)

SIGNALS = {name: TITLES[name] for name in ("sine", "noise")}
"""Signals that the angles of Fig. 3b are between."""
CORPUS = "mixed"
"""Corpus of spectra and projections."""
SERIES, LENGTH = 64, 512
FEW_SERIES, SHORT = 8, 256
"""Of a quick corpus."""
BEFORE = ", before training"
"""Ending of the name of an initial network."""
ITEMS = 128
"""Tokens of an angle map."""


def at_hand() -> tuple[str, ...]:
    """Every checkpoint that this installation and the packages beside it carry, the two references first."""
    return (*sorted(list_bundled(), key=lambda name: (name not in REFERENCE, name)), *list_packaged())


@partial(
    Recipe,
    id="2a",
    title="Spectra of embedding matrices across modalities",
    shows="spectra of embedded inputs fall much faster for series than for tables, text and images",
    takes=("model", "data", "quick", "seed"),
    models=at_hand,
    published=(
        *(T5, BOLT, "amazon/chronos-t5-small", "google/timesfm-2.0-500m-pytorch"),
        *("google/timesfm-2.5-200m-transformers", TEXT_T5, "google/vit-base-patch16-224"),
    ),
)
def fig2a(settings: Settings) -> Drawn:
    """Relative singular values of embedding matrices across modalities, and their ε-ranks before and after training."""
    report, start, about = _report(settings)
    report, start = inputs_of(report), None if start is None else inputs_of(start)
    before = {} if start is None else {row.model: row for row in start.rows}
    ranks = []
    for row in report.rows:
        first = f", {_rank(before[row.model].eps_ranks, 0.1)} before training" if row.model in before else ""
        ranks.append(f"{row.model} {_rank(row.eps_ranks, 0.1)} of {row.largest_rank}{first}")
    caption = (
        "Top: relative singular values σ_j/σ_1 of embedded inputs; bottom: their ε-ranks over the largest possible, "
        "ε = 0.1, trained (the mark of the model, dots of the others) and before training (crosses). Inputs: of "
        "series models "
        f"{corpus_of(report)}; of image models generated images; of text models the vocabulary. ε-ranks: "
        f"{'; '.join(ranks)}. Measured on {about}."
    )
    facts = ("model", "family", "strategy", "matrix", "tokens", "d_model")
    parts = [
        sigma_frame(row.relative, trained=trained, **{name: getattr(row, name) for name in facts})
        for trained, rows in ((True, report.rows), (False, before.values()))
        for row in rows
    ]
    return Drawn(modalities(report, start), pd.concat(parts, ignore_index=True), caption, seed=report.seed)


def _projection(settings: Settings, points: str) -> Drawn:
    report, start, about = _report(settings)
    matrix = "vocabulary" if any(row.matrix == "vocabulary" for row in report.rows) else "corpus"
    named = labels(list(dict.fromkeys(row.model for row in report.rows)))
    without = set(named) - {row.model for row in report.rows if row.matrix == matrix}
    if without:
        raise DataError(f"{', '.join(sorted(without))} has no vocabulary, as the others have: draw it by itself.")
    both = [] if start is None else [replace(row, model=named[row.model] + BEFORE) for row in start.rows]
    both += [replace(row, model=named[row.model] + (", trained" if start else "")) for row in report.rows]
    rows = [row for row in both if row.matrix == matrix]
    shares = "; ".join(f"{row.model} {float((row.sigma[:2] ** 2).sum() / (row.sigma**2).sum()):.0%}" for row in rows)
    shown = points if matrix == "vocabulary" else f"the tokens of {corpus_of(report)}"
    many = f"; {len(rows[0].projection.points)} points, drawn at random" if rows[0].tokens > 2048 else ""
    caption = (
        f"The {matrix} ({shown}) on its two leading singular vectors, coloured by "
        f"{' or '.join(dict.fromkeys(row.projection.colour_name for row in rows))}{many}. The two directions carry "
        f"of the squared norm: {shares}. Measured on {about}; seed {report.seed}."
    )
    parts = [
        pd.DataFrame(
            {
                "model": row.model,
                "matrix": row.matrix,
                "trained": not row.model.endswith(BEFORE),
                row.projection.colour_name.replace(" ", "_"): row.projection.colour,
                "along_v1": row.projection.points[:, 0],
                "along_v2": row.projection.points[:, 1],
            }
        )
        for row in rows
    ]
    shown_rows = replace(report, rows=tuple(rows))
    return Drawn(
        embedding_projection(shown_rows, matrix=matrix), pd.concat(parts, ignore_index=True), caption, seed=report.seed
    )


fig2b = Recipe(
    partial(_projection, points="the quantised values"),
    id="2b",
    title="Chronos' vocabulary on two singular vectors",
    shows="the embedded bins of Chronos lie on a curve, in the order of their values",
    takes=("model", "data", "quick", "seed"),
    models=REFERENCE[:1],
    most_models=4,
    published=(T5,),
)
fig2c = Recipe(
    partial(_projection, points="the tokens of text"),
    id="2c",
    title="A text vocabulary on two singular vectors",
    shows="the embedded tokens of T5 have no such structure",
    takes=("model", "data", "quick", "seed"),
    models=text_model,
    most_models=4,
    published=(TEXT_T5,),
)


@partial(
    Recipe,
    id="3b",
    title="Angles between embedded patches",
    shows="embedded patches are spread like vectors of R^16, the space of a patch, not like those of R^768",
    takes=("model", "quick", "seed"),
    models=REFERENCE[1:],
    most_models=1,
    published=(BOLT,),
)
def fig3b(settings: Settings) -> Drawn:
    """Angles between embedded patches of sinusoids and of noise, and between random vectors."""
    checkpoints = of_series(settings.checkpoints(), "3b")
    one = checkpoints[0]
    if one.family.patch_size(one.config) == 1:
        raise DataError(f"{one.source} embeds single values: figure 3b compares patches, of Chronos-Bolt for one.")
    maps: dict[str, np.ndarray] = {}
    for signal, title in SIGNALS.items():
        report = measured(checkpoints, signal, settings)
        (row,) = corpora(report).values()
        maps[title] = row.angles
    width, patch, items = row.d_model, row.patch_size, len(row.angles)
    drawn = torch.Generator().manual_seed(settings.seed)
    for dimension in dict.fromkeys((patch, width)):
        maps[f"random, d = {dimension}"] = angle_matrix(torch.randn(items, dimension, generator=drawn)).numpy()
    means = "; ".join(f"{title} {np.rad2deg(mean_angle(angles)):.0f}°" for title, angles in maps.items())
    caption = (
        f"Angles between the embedded vectors of the first {items} patches of {report.n} series of {report.length} "
        "values of each signal, and between as many random Gaussian vectors in the space of a patch and in the "
        f"hidden space. Mean angle: {means}. Measured on {described(checkpoints[0])}; patches of {patch} values, "
        f"d = {width}, seed {settings.seed}."
    )
    return Drawn(angle_maps(maps, axis="patch"), angle_frame(maps), caption, seed=settings.seed)


def measured(
    checkpoints: Sequence[Checkpoint], signal: str, settings: Settings, angle_items: int = ITEMS
) -> EmbeddingReport:
    """Measure embedding matrices over the corpus that the settings ask for."""
    n, length = (FEW_SERIES, SHORT) if settings.quick else (SERIES, LENGTH)
    return measure_embedding(
        checkpoints,
        signal,
        n=n,
        length=length,
        seed=settings.seed,
        angle_items=angle_items,
        device=settings.device,
        progress=settings.progress,
    )


def measured_start(
    checkpoints: Sequence[Checkpoint], signals: Sequence[str], settings: Settings, angle_items: int = ITEMS
) -> dict[str, EmbeddingReport]:
    """Measure initial networks under the names of the trained ones, by signal; empty where none can be rebuilt."""
    with initial_checkpoints(checkpoints) as initial:
        if not initial:
            return {}
        names = {one.source: name for name, one in initial.items()}
        reports = {signal: measured(list(initial.values()), signal, settings, angle_items) for signal in signals}
    return {
        signal: replace(one, rows=tuple(replace(row, model=names[row.model]) for row in one.rows))
        for signal, one in reports.items()
    }


def corpora(report: EmbeddingReport) -> dict[str, EmbeddingSpectrum]:
    """Embedded corpus of each checkpoint, by its name."""
    return {row.model: row for row in report.rows if row.matrix == "corpus"}


def inputs_of(report: EmbeddingReport) -> EmbeddingReport:
    """The report with one matrix per model: the embedded corpus, or the vocabulary of a model that embeds none."""
    embedding = {row.model for row in report.rows if row.matrix == "corpus"}
    kept = tuple(row for row in report.rows if row.matrix == "corpus" or row.model not in embedding)
    return replace(report, rows=kept)


def angle_frame(maps: Mapping[str, Float[np.ndarray, "_ _"]], name: str = "map") -> pd.DataFrame:
    """Angles above the diagonal in degrees, to a tenth; maps are symmetric and zero on the diagonal."""
    parts = []
    for title, angles in maps.items():
        row, column = np.triu_indices(len(angles), 1)
        degrees = np.rad2deg(angles[row, column]).round(1)
        parts.append(pd.DataFrame({name: title, "row": row, "column": column, "degrees": degrees}))
    return pd.concat(parts, ignore_index=True)


def mean_angle(angles: Float[np.ndarray, "items items"]) -> float:
    """Mean of the angles above the diagonal, in radians; angles of zero vectors are left out."""
    return float(np.nanmean(angles[np.triu_indices(len(angles), 1)]))


def corpus_of(report: EmbeddingReport) -> str:
    """Name a corpus in a caption."""
    kind = TITLES.get(report.signal, f"the signal {report.signal}")
    return f"{kind} ({report.n} series of {report.length} values, seed {report.seed})"


def _report(settings: Settings) -> tuple[EmbeddingReport, EmbeddingReport | None, str]:
    """Report of the trained networks, that of the initial ones where they are known, and the caption's end."""
    if settings.data is not None:
        report = codec.read(EmbeddingReport, settings.data, "embed.json")
        models = dict.fromkeys(row.model for row in report.rows)
        return report, None, f"{', '.join(models)}, as saved in {settings.data.name}"
    checkpoints = settings.checkpoints()
    report, start = measured(checkpoints, CORPUS, settings), measured_start(checkpoints, (CORPUS,), settings)
    return report, start.get(CORPUS), listed(checkpoints)


def _rank(ranks: Mapping[str, int], eps: float) -> str:
    return next((str(rank) for key, rank in ranks.items() if float(key) == eps), "not measured")


FLOOR, LOWEST = 1e-7, 1e-5
"""Relative singular values below `FLOOR` are rounding of float32 embeddings; `LOWEST` ends the axis."""
OTHERS, START = "#a9b8c7", "#6f6f6f"
ONE_MODEL = 0.13
"""Height of a model's line in inches."""


def modalities(report: EmbeddingReport, start: EmbeddingReport | None = None) -> Figure:
    """Spectra of embedded inputs, and below them relative ε-ranks at 0.1 of every model, in order.

    The first two series models, text and images have marks of their own; the other series models are grey.

    Args:
        report: one matrix per model.
        start: of the same models before training.
    """
    named = labels([row.model for row in report.rows])
    series = [row.model for row in report.rows if row.modality == "series"]
    rest = [row.model for row in report.rows if row.modality != "series"]
    looks = {name: mark.kwargs() for name, mark in zip([*series[:2], *rest], MARKS, strict=False)}
    with styled():
        height = 2.2 + ONE_MODEL * len(report.rows)
        fig, (top, below) = figure(2, 1, height=height, height_ratios=(1.6, 0.1 + ONE_MODEL * len(report.rows)))
        _spectra(top, report, looks, named)
        _relative_ranks(below, report, start, looks, named)
    return fig


def _spectra(ax: Axes, report: EmbeddingReport, looks: Mapping[str, dict], named: Mapping[str, str]) -> None:
    grey: dict[str, Any] = {"color": OTHERS, "linewidth": 0.8, "zorder": 0}
    for row in report.rows:
        shown = row.relative[row.relative > FLOOR]
        index = np.arange(1, len(shown) + 1) / row.largest_rank
        look = looks.get(row.model, grey) | {"markevery": max(len(shown) // 6, 1)}
        ax.plot(index, shown, label=named[row.model] if row.model in looks else "_", gid=row.model, **look)
    if len(report.rows) > len(looks):
        ax.plot([], [], label="other series models", **grey)
    ax.set_yscale("log")
    ax.set_ylim(LOWEST, 1.5)
    ax.set_xlim(0, 1)
    ax.set_xlabel("index $j$ / smaller side of the matrix")
    ax.set_ylabel(r"$\sigma_j / \sigma_1$")
    ax.legend(loc="lower left", bbox_to_anchor=(-0.2, 1.0), ncols=3, columnspacing=0.8)


def _relative_ranks(
    ax: Axes,
    report: EmbeddingReport,
    start: EmbeddingReport | None,
    looks: Mapping[str, dict],
    named: Mapping[str, str],
) -> None:
    def share(row: EmbeddingSpectrum) -> float:
        return float((row.relative > 0.1).sum()) / row.largest_rank

    rows = sorted(report.rows, key=share)
    before = {} if start is None else {row.model: share(row) for row in start.rows}
    for place, row in enumerate(rows):
        look = looks.get(row.model, {"color": "#5b7186", "marker": "o"}) | {"linestyle": "none"}
        if row.model in before:
            ax.plot([share(row), before[row.model]], [place, place], color=OTHERS, linewidth=0.6, zorder=0)
            ax.plot([before[row.model]], [place], color=START, marker="x", linestyle="none", gid=f"start: {row.model}")
        ax.plot([share(row)], [place], gid=f"rank: {row.model}", **look)
    ax.set_yticks(range(len(rows)), [named[row.model] for row in rows])
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(0, 1.03)
    ax.set_ylim(-0.7, len(rows) - 0.3)
    ax.set_xlabel("0.1-rank / smaller side (×: before training)" if before else "0.1-rank / smaller side")
