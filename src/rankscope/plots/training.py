"""Singular values of a matrix while it is trained (Fig. 13)."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rankscope.errors import OptionError, unknown_choice
from rankscope.plots.histograms import MOST_LAYERS
from rankscope.plots.labels import thinned
from rankscope.plots.style import MARKS, figure, styled

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("step", "site", "stack", "layer", "role", "index", "sigma")
"""Columns of ``spectra.parquet``, which a run writes into its checkpoint folder."""
BINS_PER_DECADE = 4
MOST_STEPS = 4


def training_spectra(
    frame: pd.DataFrame, *, role: str = "self.q", stack: str = "encoder", steps: tuple[int, ...] | None = None
) -> Figure:
    """Histograms of all absolute singular values of one matrix per layer, one line per training step.

    Args:
        frame: rows of ``spectra.parquet``.
        role: e.g. ``self.q``.
        stack: ``encoder`` or ``decoder``.
        steps: which steps, at most six; by default four of those logged, first and last included.

    Raises:
        OptionError: a column is missing, or there is no such site or step.
    """
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise OptionError(f"the table has no column {missing[0]!r}: give the spectra.parquet of a trained model.")
    chosen = frame[(frame["role"] == role) & (frame["stack"] == stack)]
    if chosen.empty:
        known = sorted({f"{s} {r}" for s, r in zip(frame["stack"], frame["role"], strict=True)})
        raise OptionError(unknown_choice("site", f"{stack} {role}", known))
    logged = sorted({int(step) for step in chosen["step"]})
    shown = [logged[i] for i in thinned(len(logged), MOST_STEPS)] if steps is None else list(steps)
    for step in shown:
        if step not in logged:
            raise OptionError(unknown_choice("step", step, [str(one) for one in logged]))
    if len(shown) > len(MARKS):
        raise OptionError(f"{len(shown)} steps are too many for one figure: give at most {len(MARKS)}.")
    layers = sorted({int(layer) for layer in chosen["layer"]})
    layers = [layers[i] for i in thinned(len(layers), MOST_LAYERS)]
    edges = _edges(chosen[chosen["step"].isin(shown)]["sigma"].to_numpy(dtype=np.float64))
    with styled():
        columns = min(2, len(layers))
        lines = ceil(len(layers) / columns)
        fig, axes = figure(lines, columns, sharex=True, sharey=True)
        top = 0
        for position, (ax, layer) in enumerate(zip(axes, layers, strict=False)):
            top = max(top, _draw(ax, chosen[chosen["layer"] == layer], shown, edges))
            ax.set_title(f"{stack}, layer {layer}")
            if position % columns == 0:
                ax.set_ylabel("singular values")
            if position + columns >= len(layers):
                ax.set_xlabel(r"$\sigma_j$")
                ax.tick_params(labelbottom=True)
        for ax in axes[len(layers) :]:
            ax.set_axis_off()
        axes[0].set_ylim(0, 1.08 * max(top, 1))
        handles, labels = axes[0].get_legend_handles_labels()
        fig.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4), title="after step")
    return fig


def _edges(sigma: np.ndarray) -> np.ndarray:
    positive = sigma[sigma > 0]
    if not len(positive):
        return np.geomspace(0.1, 1.0, BINS_PER_DECADE + 1)
    low, high = np.log10(positive.max()) - 6, np.log10(positive.max())
    low = max(low, np.log10(positive.min()))
    first, last = np.floor(low * BINS_PER_DECADE), np.ceil(high * BINS_PER_DECADE + 1e-9)
    return np.asarray(10 ** (np.arange(first, max(last, first + 1) + 1) / BINS_PER_DECADE))


def _draw(ax: Axes, rows: pd.DataFrame, steps: list[int], edges: np.ndarray) -> int:
    """Draw one line per step over the middles of the bins, and return the largest count."""
    top = 0
    for mark, step in zip(MARKS, steps, strict=False):
        sigma = rows[rows["step"] == step]["sigma"].to_numpy(dtype=np.float64)
        counts, _ = np.histogram(np.clip(sigma, edges[0], None), edges)
        look = mark.kwargs() | {"markersize": 2.6, "linewidth": 0.9}
        ax.plot(np.sqrt(edges[1:] * edges[:-1]), counts, label=str(step), gid=f"step-{step}", **look)
        top = max(top, int(counts.max()))
    ax.set_xscale("log")
    ax.set_xlim(edges[0], edges[-1])
    return top
