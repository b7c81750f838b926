"""Three results in one figure: low-rank inputs, ranks that grow with depth, and what compression costs (Fig. 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from rankscope.errors import OptionError
from rankscope.plots.labels import whole_numbers
from rankscope.plots.style import MARKS, figure, styled

FLOOR = 1e-6
"""Relative singular values below this are rounding of the stored weights."""
_TICKS = (0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True)
class Overview:
    """What the three panels show.

    Attributes:
        embeddings: model → relative singular values of its embedding matrix, descending.
        depth: model → ε-rank over width of W_Q in each encoder layer.
        eps: ε of those ranks.
        cost: method → size ratios of the attention and the score there over the original's.
        score: name of the score.
    """

    embeddings: Mapping[str, Float[np.ndarray, " k"]]
    depth: Mapping[str, Sequence[float]]
    eps: float
    cost: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    score: str


def overview(shown: Overview) -> Figure:
    """One panel below the other: embedding spectra, relative ranks by layer, relative score by size.

    Raises:
        OptionError: one of the three is empty.
    """
    for name in ("embeddings", "depth", "cost"):
        if not getattr(shown, name):
            raise OptionError(f"{name} is empty: nothing can be drawn.")
    # a model has the same mark in both panels
    models = dict.fromkeys((*shown.embeddings, *shown.depth))
    looks = {name: MARKS[i % len(MARKS)].kwargs() for i, name in enumerate(models)}
    with styled():
        fig, axes = figure(3, 1, height=6.3)
        _spectra(axes[0], shown, looks)
        _depth(axes[1], shown, looks)
        _cost(axes[2], shown)
        for ax, letter in zip(axes, "abc", strict=True):
            ax.set_title(f"({letter})  {ax.get_title(loc='left')}")
    return fig


def _spectra(ax: Axes, shown: Overview, looks: Mapping[str, dict]) -> None:
    ax.set_title("spectrum of the embedded input")
    for name, sigma in shown.embeddings.items():
        kept = sigma[sigma > FLOOR]
        place = np.arange(1, len(kept) + 1) / len(sigma)
        ax.plot(place, kept, label=name, gid=f"embedding: {name}", markevery=max(len(kept) // 7, 1), **looks[name])
    ax.set_yscale("log")
    ax.set_xlim(0, 1)
    ax.set_ylim(top=1.5)
    ax.set_xlabel("index $j$ / width $d$")
    ax.set_ylabel(r"$\sigma_j / \sigma_1$")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _depth(ax: Axes, shown: Overview, looks: Mapping[str, dict]) -> None:
    ax.set_title("rank of $W_Q$ by layer")
    for name, ranks in shown.depth.items():
        ax.plot(range(len(ranks)), ranks, label=name, gid=f"depth: {name}", **looks[name])
    ax.set_ylim(0, 1)
    ax.margins(x=0.05)
    whole_numbers(ax)
    ax.set_xlabel("encoder layer")
    ax.set_ylabel(f"ε-rank / $d$, ε = {shown.eps:g}")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _cost(ax: Axes, shown: Overview) -> None:
    ax.set_title("accuracy after compression")
    for mark, (method, (sizes, scores)) in zip(MARKS, shown.cost.items(), strict=False):
        ax.plot(sizes, scores, label=method, gid=f"cost: {method}", **mark.kwargs())
    ax.axhline(1.0, color="#d5dbe1", linewidth=0.6, zorder=0)
    for axis, log in ((ax.xaxis, ax.set_xscale), (ax.yaxis, ax.set_yscale)):
        log("log")
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_major_locator(FixedLocator(list(_TICKS)))
    low, high = ax.get_ylim()
    ax.yaxis.set_major_locator(FixedLocator([tick for tick in (1, 1.2, 1.5, 2, 3, 5, 10) if low <= tick <= high]))
    ax.set_xlabel("size ratio of the attention")
    ax.set_ylabel(f"{shown.score} / original")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
