"""What training did to the spectra of one role: its start and its end, layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rankscope.errors import OptionError
from rankscope.plots.labels import label_ends, sequence_colours, thinned, whole_numbers
from rankscope.plots.spectra import FLOOR
from rankscope.plots.style import MARKS, figure, styled

if TYPE_CHECKING:
    from rankscope.measure.spectrum import SiteSpectrum, SpectrumReport

START_COLOUR = "#9a9a9a"
MOST_LABELS = 8


def start_and_end(
    start: SpectrumReport, end: SpectrumReport, *, role: str = "self.q", stack: str = "encoder"
) -> Figure:
    """Relative spectra of one role before (dashed) and after training, and below them ε-ranks against layer.

    Args:
        start: spectra of the network as it was drawn.
        end: spectra of the same network trained.
        role: e.g. ``self.q``.
        stack: ``encoder`` or ``decoder``.

    Raises:
        OptionError: a report lacks the site or its spectra, or the two are of different networks.
    """
    before, after = (_rows(report, role, stack) for report in (start, end))
    if [row.shape for row in before] != [row.shape for row in after]:
        raise OptionError(f"{start.model} and {end.model} differ in the shapes of {stack} {role}: give one network.")
    with styled():
        fig, (top, below) = figure(2, 1, height=3.9, height_ratios=(3, 2))
        _spectra(top, before, after)
        top.set_title(f"{stack}, $W_{role[-1].upper()}$ of {role.partition('.')[0]}-attention")
        _ranks(below, before, after, list(after[0].eps_ranks))
    return fig


def _rows(report: SpectrumReport, role: str, stack: str) -> list[SiteSpectrum]:
    rows = [row for row in report.sites if (row.site.stack, row.site.role) == (stack, role)]
    if not rows or any(row.sigma is None for row in rows):
        raise OptionError(f"the report of {report.model} has no spectra of {stack} {role}: measure them.")
    return rows


def _relative(row: SiteSpectrum) -> np.ndarray:
    assert row.sigma is not None
    return np.asarray(row.sigma, dtype=np.float64) / max(float(row.sigma[0]), np.finfo(float).tiny)


def _spectra(ax: Axes, before: list[SiteSpectrum], after: list[SiteSpectrum]) -> None:
    for row in before:
        sigma = _relative(row)
        ax.plot(np.arange(1, len(sigma) + 1), sigma, color=START_COLOUR, linestyle="--", linewidth=0.7)
    lines = []
    for row, colour in zip(after, sequence_colours(len(after)), strict=True):
        sigma = _relative(row)
        lines += ax.plot(np.arange(1, len(sigma) + 1), sigma, color=colour, gid=row.site.name)
    smallest = min(float(values[values > 0].min(initial=1.0)) for values in map(_relative, [*before, *after]))
    ax.set_yscale("log")
    ax.set_ylim(max(FLOOR, smallest / 1.5), 1.5)
    ax.set_xlim(1, max(2, *(len(_relative(row)) for row in after)))
    ax.set_xlabel("index $j$ of the singular value (dashed: before training)")
    ax.set_ylabel(r"$\sigma_j / \sigma_1$")
    shown = thinned(len(after), MOST_LABELS)
    label_ends(ax, [lines[i] for i in shown], [f"layer {after[i].site.layer}" for i in shown], height=1.7)


def _ranks(ax: Axes, before: list[SiteSpectrum], after: list[SiteSpectrum], keys: list[str]) -> None:
    layers = [row.site.layer or 0 for row in after]
    for key, mark in zip(keys, MARKS, strict=False):
        look = mark.kwargs()
        ax.plot(layers, [row.eps_ranks[key] for row in after], label=f"ε = {key}", **look)
        faint = look | {"alpha": 0.35, "linestyle": "--"}
        ax.plot(layers, [row.eps_ranks[key] for row in before], **faint)
    ax.set_xlabel("layer (faint: before training)")
    ax.set_ylabel("ε-rank")
    ax.set_ylim(bottom=0)
    ax.margins(x=0.08)
    whole_numbers(ax, most=6)
    ax.legend(ncols=len(keys), loc="best")
