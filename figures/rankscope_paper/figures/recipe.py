"""Declaration of a figure (`Recipe`): its number, what it needs, what draws it, and what is said below it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rankscope.checkpoints import Checkpoint, describe, list_bundled, open_checkpoint
from rankscope.engine import Progress, silent
from rankscope.errors import DataError
from rankscope.plots.labels import short_names

Source = Literal["models", "saved", "nothing"]
"""Source of a recipe: checkpoints that it measures, a saved result, or nothing but its formula."""
Option = Literal["model", "data", "quick", "rerun", "seed"]

CARRIED = Path(__file__).with_name("data")
"""Folder of the results that the package carries."""
T5, BOLT, TEXT_T5 = "amazon/chronos-t5-base", "amazon/chronos-bolt-base", "google-t5/t5-base"
"""The paper's own checkpoints."""
REFERENCE = ("bundled", "bundled-bolt")
"""Chronos-T5 and Chronos-Bolt, trained by this project: a quantised vocabulary and embedded patches."""


@dataclass(frozen=True)
class Settings:
    """Settings of a drawing.

    Attributes:
        models: checkpoints to measure in place of the recipe's own.
        data: saved result, or folder of one, in place of the recipe's own.
        quick: a smaller corpus or experiment, for a first look.
        rerun: compute what is otherwise read from a saved result.
        seed: of every random choice.
        device: where models run and matrices are decomposed: ``cpu``, ``cuda`` or ``auto``.
        progress: progress callback.
    """

    models: tuple[str, ...] = ()
    data: Path | None = None
    quick: bool = False
    rerun: bool = False
    seed: int = 0
    device: str = "cpu"
    progress: Progress = field(default=silent, compare=False)

    def checkpoints(self) -> list[Checkpoint]:
        """Open the models."""
        return [open_checkpoint(name) for name in self.models]


@dataclass(frozen=True)
class Drawn:
    """A figure, the numbers in it, and what is to be said below it.

    Attributes:
        figure: one column wide.
        frame: the numbers drawn, one observation per row.
        caption: what was measured, on which checkpoint or saved result, with which ε and seed; one paragraph.
        name: what tells it from the other figures of its recipe; empty for the only one.
        compact: table that ``--data`` of the same recipe reads, where that is not the saved result itself.
        seed: of the random choices in it, None where there are none.
    """

    figure: Figure
    frame: pd.DataFrame
    caption: str
    name: str = ""
    compact: pd.DataFrame | None = None
    seed: int | None = None


Draw = Callable[[Settings], Drawn | tuple[Drawn, ...]]


@dataclass(frozen=True)
class Recipe:
    """Declaration of one figure of the paper; ``@partial(Recipe, id=…)`` makes one of the function that draws it.

    Attributes:
        draw: measures or reads, and draws; most recipes give one figure.
        id: number in the paper, e.g. ``4a``.
        title: one line.
        shows: content of the paper's figure, in one line.
        takes: fields of `Settings` that have a meaning for it.
        models: names of the checkpoints that are measured by default, in the order drawn, or a function that raises
            `RankscopeError` where this installation carries none that fits; empty where no model is measured.
        most_models: how many it can draw, None for any number.
        data: names of the saved results in ``rankscope_paper/figures/data`` that it reads by default; beside `models`
            both are drawn.
        make: command that makes the saved result.
        published: hub ids of the paper's own checkpoints.
        names: what tells its figures apart, as `Drawn.name`, as far as the settings say before anything is drawn.
    """

    draw: Draw
    id: str
    title: str
    shows: str
    takes: tuple[Option, ...] = ()
    models: tuple[str, ...] | Callable[[], tuple[str, ...]] = ()
    most_models: int | None = None
    data: tuple[str, ...] = ()
    make: str = ""
    published: tuple[str, ...] = ()
    names: Callable[[Settings], tuple[str, ...]] = lambda settings: ("",)

    @property
    def source(self) -> Source:
        """The kind of thing that it is drawn from."""
        return "models" if self.models else "saved" if self.data else "nothing"

    @property
    def stem(self) -> str:
        """Name of its files without ending.

        >>> from rankscope_paper.figures import FIGURES
        >>> FIGURES["4a"].stem, FIGURES["table2"].stem
        ('fig4a', 'table2')
        """
        return f"fig{self.id}" if self.id[0].isdigit() else self.id

    def heeds(self, option: str, settings: Settings) -> bool:
        """Return True if an option that is given changes what is drawn."""
        if option not in self.takes:
            return False
        if option in ("quick", "rerun", "seed") and settings.data is not None and not (self.models and self.data):
            return False  # a saved result is drawn as it is
        return option != "seed" or "rerun" not in self.takes or settings.quick or settings.rerun

    def own_models(self) -> tuple[str, ...]:
        """Names of the checkpoints that are measured by default.

        Raises:
            RankscopeError: this installation carries none that fits.
        """
        return self.models() if callable(self.models) else self.models


def carried(name: str, make: str) -> Path:
    """Path of a result that the package carries.

    Raises:
        DataError: it does not; the message names the command that makes it.
    """
    file = CARRIED / name
    if not file.is_file():
        raise DataError(f"there is no saved {name}: make it with `{make}`, and name it with --data.")
    return file


def read_parquet(file: Path, wanted: str) -> pd.DataFrame:
    """Read a table.

    Raises:
        DataError: the file holds none; the message says what is wanted.
    """
    try:
        return pd.read_parquet(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{file} is not a Parquet file: name {wanted}.") from error


def text_model() -> tuple[str, ...]:
    """A bundled text model of T5's layout.

    Raises:
        DataError: this installation carries none.
    """
    found = of_modality("text")
    if not found:
        raise DataError(f"no text model is bundled here: name one with --model, e.g. {TEXT_T5}.")
    return found


def of_modality(modality: str) -> tuple[str, ...]:
    """First bundled checkpoint that reads ``series``, ``text`` or ``image``; nothing without one."""
    return next(((name,) for name in list_bundled() if describe(name).family.modality == modality), ())


def of_series(checkpoints: list[Checkpoint], number: str) -> list[Checkpoint]:
    """Return the checkpoints of a figure that is about series.

    Raises:
        DataError: one reads text or images.
    """
    for one in checkpoints:
        if one.family.modality != "series":
            raise DataError(f"{one.source} embeds no series, but {one.family.modality}: figure {number} needs series.")
    return checkpoints


def described(checkpoint: Checkpoint) -> str:
    """Name a checkpoint in a caption: what it was opened by, its family, its size."""
    size = checkpoint.parameters
    count = f"{size / 1e6:.1f} million" if size >= 100_000 else f"{size:,}"
    return f"{checkpoint.source} ({checkpoint.family.title}, {count} parameters)"


def labels(sources: Sequence[str]) -> dict[str, str]:
    """Names of models in a figure: the family of a bundled one, else the last part of the path or hub id.

    >>> labels(["bundled", "bundled-bolt", "amazon/chronos-t5-base"])
    {'bundled': 'Chronos-T5', 'bundled-bolt': 'Chronos-Bolt', 'amazon/chronos-t5-base': 'chronos-t5-base'}
    """
    bundled = list_bundled()
    short = dict(zip(sources, short_names(list(sources)), strict=True))
    found = {name: describe(name).family.title if name in bundled else short[name] for name in sources}
    return found if len(set(found.values())) == len(found) else short


def listed(checkpoints: Sequence[Checkpoint]) -> str:
    """Name several checkpoints in a caption."""
    return ", ".join(described(one) for one in checkpoints)


def sigma_frame(relative: np.ndarray, **columns: object) -> pd.DataFrame:
    """Relative singular values, numbered from 1, after columns that are the same in every row."""
    return pd.DataFrame({**columns, "index": np.arange(1, len(relative) + 1), "relative_sigma": relative})
