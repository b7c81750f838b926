"""Flow of ranks: spectra of each layer's input, and ε-ranks against depth (Fig. 5c)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from rankscope.errors import OptionError, unknown_choice
from rankscope.plots.falling import draw_spectra
from rankscope.plots.labels import whole_numbers, wrapped
from rankscope.plots.style import MARKS, figure, styled
from rankscope.series.signals import TITLES

if TYPE_CHECKING:
    from rankscope.measure.flow import FlowReport, LayerFlow

FLOOR = 1e-7
"""Relative singular values below this are float32 rounding of the forward pass."""

_BESIDE = (("self.q", "self.k", "self.v"), ("cross.q", "cross.k", "cross.v"))
"""Roles that are drawn: the first three that every layer has."""
_TITLES = {
    "input": "layer input",
    **{f"self.{letter}": f"$W_{letter.upper()}$" for letter in "qkv"},
    **{f"cross.{letter}": f"cross $W_{letter.upper()}$" for letter in "qkv"},
}


def flow(report: FlowReport, *, stack: str = "encoder", eps: float | None = None) -> Figure:
    """Top: relative singular values of every layer's input; bottom: its ε-rank beside those of W_Q, W_K, W_V.

    Those are of self-attention, or of cross-attention where self-attention has matrices that are never trained.

    Args:
        report: from `rankscope.measure.flow.measure_flow`.
        stack: ``encoder`` or ``decoder``.
        eps: one of the report's, the first by default.

    Raises:
        OptionError: the report has no such stack or ε.
    """
    rows = report.stack(stack)
    if not rows:
        raise OptionError(unknown_choice("stack", stack, sorted({row.stack for row in report.layers})))
    key = eps_key(eps, rows[0].eps_ranks)
    with styled():
        fig, (top, bottom) = figure(2, 1, height_ratios=(3, 2))
        _draw_spectra(top, rows)
        top.set_title(wrapped(f"{stack}, input: {TITLES.get(report.signal, report.signal)}", 1))
        _draw_ranks(bottom, rows, key)
    return fig


def eps_key(eps: float | None, ranks: dict[str, int]) -> str:
    """The key of ``ranks`` for ε, the first for None.

    Raises:
        OptionError: ε was not measured.
    """
    if eps is None:
        return next(iter(ranks))
    found = next((key for key in ranks if float(key) == eps), None)
    if found is None:
        raise OptionError(unknown_choice("eps", eps, ranks, "Measure it first."))
    return found


def _draw_spectra(ax: Axes, rows: tuple[LayerFlow, ...]) -> None:
    values, labels = [row.relative for row in rows], [f"layer {row.layer}" for row in rows]
    ids = [f"{row.stack}.{row.layer}" for row in rows]
    draw_spectra(ax, values, labels, ids, floor=FLOOR, most=12, height=1.8)
    ax.set_ylabel(r"$\sigma_j / \sigma_1$ of the layer's input")


def _draw_ranks(ax: Axes, rows: tuple[LayerFlow, ...], key: str) -> None:
    layers = [row.layer for row in rows]
    series = {"input": [row.eps_ranks[key] for row in rows]}
    whole = [roles for roles in _BESIDE if all(role in row.weight_eps_ranks for row in rows for role in roles)]
    for role in whole[0] if whole else ():
        series[role] = [row.weight_eps_ranks[role][key] for row in rows]
    for (name, ranks), mark in zip(series.items(), MARKS, strict=False):
        ax.plot(layers, ranks, label=_TITLES[name], gid=name, **mark.kwargs())
    ax.set_yscale("log", base=2)  # an input's rank may be a hundredth of a weight's
    ranks = [rank for one in series.values() for rank in one if rank > 0]
    ax.set_ylim(min(ranks, default=1) / 1.4, max(ranks, default=1) * 1.4)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.set_xlabel("layer")
    ax.set_ylabel(f"ε-rank, ε = {key}")
    whole_numbers(ax)
    ax.figure.legend(loc="outside lower center", ncols=len(series))
