"""Recipe of a figure, its settings, the drawn figure, and the saved results that the package carries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rankscope.engine.progress import Progress, silent
from rankscope.errors import DataError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Source = Literal["models", "saved", "nothing"]
"""What a recipe draws from: checkpoints that it measures, a saved result, or nothing but its formula."""
Option = Literal["model", "data", "quick", "rerun", "seed"]

CARRIED = Path(__file__).with_name("data")
"""Folder of the results that the package carries."""


@dataclass(frozen=True)
class Settings:
    """What a recipe is told.

    Attributes:
        models: checkpoints to measure in place of the recipe's own.
        data: saved result, or folder of one, in place of the recipe's own.
        quick: a smaller corpus or experiment, for a first look.
        rerun: compute what is otherwise read from a saved result.
        seed: of every random choice.
        device: where models run and matrices are decomposed: ``cpu``, ``cuda`` or ``auto``.
        progress: told how far long work is.
    """

    models: tuple[str, ...] = ()
    data: Path | None = None
    quick: bool = False
    rerun: bool = False
    seed: int = 0
    device: str = "cpu"
    progress: Progress = field(default=silent, compare=False)


@dataclass(frozen=True)
class Drawn:
    """A figure, the numbers in it, and what is to be said below it.

    Attributes:
        figure: one column wide.
        frame: the numbers drawn, one observation per row.
        caption: what was measured, on which checkpoint or saved result, with which ε and seed; one paragraph.
        name: what tells it from the other figures of its recipe; empty for the only one.
        compact: table that ``--data`` of the same recipe reads, where that is not the saved result itself.
    """

    figure: Figure
    frame: pd.DataFrame
    caption: str
    name: str = ""
    compact: pd.DataFrame | None = None


@dataclass(frozen=True)
class Recipe:
    """How one figure of the paper is drawn.

    Attributes:
        id: number in the paper, e.g. ``4a``.
        title: one line.
        shows: what the paper's figure shows.
        source: what it is drawn from.
        draw: measures or reads, and draws; most recipes give one figure.
        takes: which fields of `Settings` have a meaning for it.
        models: names of the checkpoints that are measured by default, in the order drawn; raises `RankscopeError`
            where this installation carries none that fits.
        most_models: how many it can draw, None for any number.
        data: names of the saved results in ``rankscope/figures/data`` that it reads by default.
        make: command that makes the saved result.
        published: hub ids of the paper's own checkpoints.
    """

    id: str
    title: str
    shows: str
    source: Source
    draw: Callable[[Settings], tuple[Drawn, ...]]
    takes: tuple[Option, ...] = ()
    models: Callable[[], tuple[str, ...]] = tuple
    most_models: int | None = None
    data: tuple[str, ...] = ()
    make: str = ""
    published: tuple[str, ...] = ()

    @property
    def stem(self) -> str:
        """Name of its files without ending.

        >>> from rankscope_paper.figures import FIGURES
        >>> FIGURES["4a"].stem, FIGURES["table2"].stem
        ('fig4a', 'table2')
        """
        return f"fig{self.id}" if self.id[0].isdigit() else self.id


def carried(name: str, make: str) -> Path:
    """Path of a result that the package carries.

    Raises:
        DataError: it does not; the message names the command that makes it.
    """
    file = CARRIED / name
    if not file.is_file():
        raise DataError(f"there is no saved {name}: make it with `{make}`, and name it with --data.")
    return file
