"""Style and writing of every figure: one column wide, legible in grey, the same bytes every time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from rankscope.io.atomic import atomic_file

COLUMN = 3.35
"""Width of every figure, one journal column of 8.5 cm, in inches."""
ROW, REST = 1.38, 0.98
"""Height of a row of panels, and of what a figure has beside its rows, in inches."""

STYLE_FILE = Path(__file__).with_name("rankscope.mplstyle")
SEQUENCE = "viridis"
"""Colour map of ordered lines; its lightness is monotone, so the order survives in grey."""


@dataclass(frozen=True)
class Mark:
    """Colour, marker and dash of one kind of line; marker and dash alone tell the kinds apart."""

    colour: str
    marker: str
    dash: Any
    filled: bool = True

    def kwargs(self) -> dict[str, Any]:
        """Keyword arguments of ``Axes.plot``."""
        face = self.colour if self.filled else "white"
        return {"color": self.colour, "marker": self.marker, "linestyle": self.dash, "markerfacecolor": face}


MARKS: tuple[Mark, ...] = (
    Mark("#12355b", "o", "-"),
    Mark("#c8553d", "s", "--", filled=False),
    Mark("#2d7d5a", "^", "-."),
    Mark("#7a6a9b", "D", ":", filled=False),
    Mark("#8a6d1d", "v", (0, (5, 1, 1, 1, 1, 1))),
    Mark("#4d4d4d", "P", (0, (1, 1)), filled=False),
)


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Draw or write inside this block with rankscope's style; global settings are restored afterwards."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.style.use(STYLE_FILE)
        yield


def figure(rows: int = 1, columns: int = 1, height: float | None = None, **grid: Any) -> tuple[Figure, list[Axes]]:
    """Make a figure one column wide with a grid of axes, without pyplot's global state; call inside `styled`.

    Args:
        rows: of panels.
        columns: of panels.
        height: in inches; 6 cm for one row and 3.5 cm for every further one by default.
        grid: further arguments of ``Figure.subplots``.
    """
    fig = Figure(figsize=(COLUMN, REST + rows * ROW if height is None else height))
    FigureCanvasAgg(fig)
    axes = fig.subplots(rows, columns, squeeze=False, **grid)
    return fig, list(axes.ravel())


def save_figure(fig: Figure, stem: str | Path, *, force: bool = True) -> tuple[Path, Path]:
    """Write ``stem.png`` (300 dpi) and ``stem.svg`` (text kept as text), each whole or not at all.

    The same figure gives the same bytes: no date, no random ids.

    Returns:
        The two paths, PNG first.

    Raises:
        OutputError: a file exists and ``force`` is False, or the place cannot be written.
    """
    base = Path(stem)
    targets = (base.with_name(base.name + ".png"), base.with_name(base.name + ".svg"))
    metadata: tuple[dict[str, Any], ...] = ({"Software": None}, {"Date": None, "Creator": "rankscope"})
    with styled():
        for target, facts in zip(targets, metadata, strict=True):
            with atomic_file(target, force=force) as work:
                fig.savefig(work, format=target.suffix[1:], metadata=facts)
    return targets
