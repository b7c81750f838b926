"""Figures of a verb: all of them appear in their folder, or none."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.errors import OutputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SUFFIXES = (".png", ".svg")


def check_figures(folder: str | None, stems: Iterable[str], force: bool) -> None:
    """Raise `OutputError` unless the figures named ``stems`` can be put into ``folder``; call it before long work."""
    if folder is None:
        return
    place = Path(folder)
    if place.exists() and not place.is_dir():
        raise OutputError(f"--figures {place} is a file: name a folder.")
    for stem in stems:
        for suffix in _SUFFIXES:
            file = place / f"{stem}{suffix}"
            if file.exists() and not force:
                raise OutputError(f"--figures: {file} exists already: choose another folder, or pass --force.")


def save_figures(folder: str | Path, drawn: Mapping[str, Figure]) -> list[Path]:
    """Write every figure as PNG and SVG and move them into ``folder`` together; return what was written."""
    from rankscope.plots import save_figure

    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".figures.", suffix=".partial", dir=place) as work:
            for stem, figure in drawn.items():
                save_figure(figure, Path(work) / stem)
            return [_moved(file, place) for file in sorted(Path(work).iterdir())]
    except OSError as error:
        raise OutputError(f"cannot write into {place}: {error.strerror or error}.") from error


def _moved(file: Path, place: Path) -> Path:
    target = place / file.name
    os.replace(file, target)
    return target
