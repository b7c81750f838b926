"""Fig. 8: angles and spectra of embedded noise and sinusoids under four embedding strategies."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure, FigureBase

from rankscope.checkpoints import list_bundled
from rankscope.families import FAMILIES
from rankscope.measure.embedding import EmbeddingSpectrum
from rankscope.plots.labels import plain_ticks
from rankscope.plots.style import MARKS, figure, styled
from rankscope_paper.figures.embedding import SIGNALS, angle_frame, corpora, mean_angle, measured, measured_start
from rankscope_paper.figures.recipe import BOLT, T5, Drawn, Recipe, Settings, labels, listed, of_series, sigma_frame

COMPARED = ("chronos-t5", "chronos-bolt", "wavetoken", "time-moe")
"""Families of the paper's four strategies."""
EPS = "0.1"
ITEMS = 64
"""Tokens of an angle map."""


def stand_ins() -> tuple[str, ...]:
    """Of each of the four families the checkpoint that this installation carries."""
    found = (FAMILIES[name].stand_in for name in COMPARED)
    return tuple(name for name in found if name in list_bundled())


@partial(
    Recipe,
    id="8",
    title="Angles and spectra of four embedding strategies",
    shows="embedded sinusoids are more alike than embedded noise, and of lower rank, under four strategies",
    takes=("model", "quick", "seed"),
    models=stand_ins,
    most_models=4,
    published=(T5, BOLT),
)
def fig8(settings: Settings) -> Drawn:
    """Angles and spectra of every model under both signals."""
    checkpoints = of_series(settings.checkpoints(), "8")
    reports = {kind: measured(checkpoints, kind, settings, ITEMS) for kind in reversed(SIGNALS)}
    rows = {kind: corpora(report) for kind, report in reports.items()}
    first = measured_start(checkpoints, list(rows), settings, ITEMS)
    start = {kind: {row.model: row for row in first[kind].rows if row.matrix == "corpus"} for kind in first}
    angles, ranks = [], []
    for name in rows["sine"]:
        of = {SIGNALS[kind]: found[name] for kind, found in rows.items()}
        means = (f"{np.rad2deg(mean_angle(row.angles)):.0f}° ({signal})" for signal, row in of.items())
        angles.append(f"{name} {', '.join(means)}")
        before = [start[kind][name].eps_ranks[EPS] for kind in rows if name in start.get(kind, {})]
        note = f", before training {before[0]} and {before[1]}" if before else ""
        of_both = ", ".join(f"{row.eps_ranks[EPS]} of {row.d_model} ({x})" for x, row in of.items())
        ranks.append(f"{name} {of_both}{note}")
    size = reports["sine"]
    caption = (
        f"Top: angles between the embedded vectors of the first tokens ({ITEMS} at most) of white noise and of "
        f"sinusoids; bottom: relative singular values of all embedded tokens, thin before training ({size.n} "
        f"series of {size.length} values of each signal, seed {size.seed}). "
        f"Mean angles: {'; '.join(angles)}. ε-ranks, ε = {EPS}: "
        f"{'; '.join(ranks)}. Measured on {listed(checkpoints)}."
    )
    return Drawn(strategies(rows, start), _frame(rows, start), caption, seed=settings.seed)


def _frame(
    rows: Mapping[str, Mapping[str, EmbeddingSpectrum]], start: Mapping[str, Mapping[str, EmbeddingSpectrum]]
) -> pd.DataFrame:
    """Angles, relative singular values and those before training, distinguished by ``quantity``."""
    frames = []
    for kind, found in rows.items():
        pairs = angle_frame({name: row.angles for name, row in found.items()}, "model")
        frames.append(pairs.assign(signal=kind, quantity="angle"))
        for name, row in found.items():
            frames.append(sigma_frame(row.relative, model=name, signal=kind, quantity="spectrum"))
        for name, row in start.get(kind, {}).items():
            frames.append(sigma_frame(row.relative, model=name, signal=kind, quantity="spectrum before training"))
    table = pd.concat(frames, ignore_index=True)
    whole = dict.fromkeys(("row", "column", "index"), "Int64")
    return table[["signal", "model", "quantity", "row", "column", "degrees", "index", "relative_sigma"]].astype(whole)


FLOOR = 1e-7
"""Relative singular values below this are rounding of float32 embeddings."""


def strategies(
    rows: Mapping[str, Mapping[str, EmbeddingSpectrum]],
    start: Mapping[str, Mapping[str, EmbeddingSpectrum]] | None = None,
) -> Figure:
    """One row of angle maps per signal, one column per model, and one panel of spectra per signal.

    Args:
        rows: signal → model → its embedded corpus; the same models for every signal.
        start: the same before training, where it is known.
    """
    models = list(next(iter(rows.values())))
    names = list(labels(models).values())
    side = 2.75 / len(models)
    with styled():
        fig, _ = figure(height=len(rows) * side + 2.9)
        fig.clear()
        grid = fig.add_gridspec(2, 1, height_ratios=(len(rows) * side + 0.7, 2.2))
        above, below = fig.add_subfigure(grid[0]), fig.add_subfigure(grid[1])
        axes = above.subplots(len(rows), len(models), squeeze=False)
        for line, (signal, found) in zip(axes, rows.items(), strict=True):
            for ax, model, name in zip(line, models, names, strict=True):
                shown = np.ma.masked_invalid(np.rad2deg(found[model].angles))
                image = ax.imshow(shown, vmin=0, vmax=90)
                ax.set(xticks=[], yticks=[])
                ax.spines[:].set_visible(False)
                if found is next(iter(rows.values())):
                    ax.set_title(name)
            line[0].set_ylabel(SIGNALS.get(signal, signal))
        bar = above.colorbar(image, ax=axes, location="bottom", aspect=45, pad=0.03)
        bar.set_ticks([0, 30, 60, 90])
        bar.set_label("angle between tokens (degrees)")
        bar.outline.set_linewidth(0.4)
        _spectra(below, rows, start or {}, names)
    return fig


def _spectra(
    below: FigureBase,
    rows: Mapping[str, Mapping[str, EmbeddingSpectrum]],
    start: Mapping[str, Mapping[str, EmbeddingSpectrum]],
    names: list[str],
) -> None:
    axes = below.subplots(1, len(rows), sharey=True, squeeze=False)[0]
    smallest = 1.0
    for ax, (signal, found) in zip(axes, rows.items(), strict=True):
        for i, (name, (model, row)) in enumerate(zip(names, found.items(), strict=True)):
            shown = row.relative[row.relative > FLOOR]
            smallest = min(smallest, float(shown.min(initial=1.0)))
            look = MARKS[i % len(MARKS)].kwargs()
            if model in start.get(signal, {}):
                first = start[signal][model].relative
                thin = look | {"marker": "", "linewidth": 0.5}
                ax.plot(np.arange(1, len(first) + 1), first, gid=f"start, {signal}: {name}", zorder=0, **thin)
            # on a logarithmic axis the marks are as far apart in the logarithm
            every = np.unique(np.geomspace(1, len(shown), 6).round().astype(int) - 1).tolist()
            ax.plot(np.arange(1, len(shown) + 1), shown, label=name, gid=f"{signal}: {name}", markevery=every, **look)
        ax.set_title(SIGNALS.get(signal, signal))
        ax.set_xscale("log")
        ax.set_yscale("log")
        plain_ticks(ax.xaxis, (1, 10, 100))
        ax.set_xlabel("index $j$")
    axes[0].set_ylim(max(FLOOR, smallest / 1.5), 1.5)
    axes[0].set_ylabel(r"$\sigma_j / \sigma_1$")
    handles, titles = axes[0].get_legend_handles_labels()
    below.legend(handles, titles, loc="outside lower center", ncols=4, columnspacing=0.6, handlelength=1.7)
