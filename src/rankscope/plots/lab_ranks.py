"""Ranks of the lab's models in one figure: by depth, by codebook, and what cutting costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from rankscope.errors import OptionError
from rankscope.plots.labels import whole_numbers
from rankscope.plots.style import MARKS, figure, styled

PANEL = 2.0
"""Height of a panel in inches."""


@dataclass(frozen=True)
class Line:
    """Means over seeds.

    Attributes:
        x: places.
        y: means.
        spread: standard deviations, 0 of one seed.
    """

    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float]


@dataclass(frozen=True)
class LabRanks:
    """What the panels show, by the label of a line; a panel without lines is left out.

    Attributes:
        encoders: effective rank of the stream by depth, of input encoders.
        layers: likewise, of kinds of layers.
        codebooks: rank by number of codes.
        cuts: loss over the whole model's, by share of numbers kept.
    """

    encoders: Mapping[str, Line] = field(default_factory=dict)
    layers: Mapping[str, Line] = field(default_factory=dict)
    codebooks: Mapping[str, Line] = field(default_factory=dict)
    cuts: Mapping[str, Line] = field(default_factory=dict)


def lab_ranks(shown: LabRanks) -> Figure:
    """One panel below the other.

    Raises:
        OptionError: there is nothing to draw, or a panel has more lines than there are marks.
    """
    panels = {
        "input encoders": (shown.encoders, _depth),
        "kinds of layers": (shown.layers, _depth),
        "codebooks": (shown.codebooks, _codes),
        "cutting one kind of layer": (shown.cuts, _cuts),
    }
    kept = {title: panel for title, panel in panels.items() if panel[0]}
    if not kept:
        raise OptionError("no panel has a line: nothing can be drawn.")
    if any(len(lines) > len(MARKS) for lines, _ in kept.values()):
        raise OptionError(f"a panel has more than {len(MARKS)} lines: they could not be told apart.")
    with styled():
        fig, axes = figure(len(kept), 1, height=PANEL * len(kept))
        for ax, letter, (title, (lines, finish)) in zip(axes, "abcd", kept.items(), strict=False):
            for mark, (name, line) in zip(MARKS, lines.items(), strict=False):
                ax.errorbar(line.x, line.y, line.spread, label=name, elinewidth=0.6, capsize=1.5, **mark.kwargs())
            finish(ax, lines)
            ax.set_title(f"({letter})  {title}")
            ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return fig


def _depth(ax: Axes, lines: Mapping[str, Line]) -> None:
    ax.set_ylim(bottom=0)
    whole_numbers(ax)
    ax.set_xlabel("blocks passed")
    ax.set_ylabel("effective rank")


def _codes(ax: Axes, lines: Mapping[str, Line]) -> None:
    ax.set_xscale("log", base=2)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_locator(FixedLocator(sorted({x for line in lines.values() for x in line.x})))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.set_ylim(bottom=0)
    ax.set_xlabel("codes")
    ax.set_ylabel("rank")


def _cuts(ax: Axes, lines: Mapping[str, Line]) -> None:
    ax.set_xscale("log")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_locator(FixedLocator([0.1, 0.25, 0.5, 1.0]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.axhline(1.0, color="#d5dbe1", linewidth=0.6, zorder=0)
    ax.set_xlabel("share of the layers' numbers")
    ax.set_ylabel("loss / whole model")
