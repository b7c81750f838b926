"""A drawn figure as files: PNG, SVG, the numbers as CSV, the caption as text; all of them appear, or none."""

from __future__ import annotations

import contextlib
import textwrap
from pathlib import Path

from rankscope.errors import OutputError
from rankscope.io.atomic import atomic_file
from rankscope.plots import save_figure
from rankscope_paper.figures._record import Drawn, Recipe

ENDINGS = (".png", ".svg", ".csv", ".txt")
CAPTION_WIDTH = 100
"""Columns of a caption's file."""


def refuse_existing_files(recipe: Recipe, folder: Path, force: bool) -> None:
    """Raise `OutputError` where a file of the recipe exists and may not be replaced; call it before long work."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"--out {folder} is a file: name a folder.")
    for ending in ENDINGS:
        file = folder / f"{recipe.stem}{ending}"
        if file.exists() and not force:
            raise OutputError(f"--out: {file} exists already: choose another folder, or pass --force.")


def write_drawn(recipe: Recipe, drawn: Drawn, folder: Path, *, force: bool = False) -> list[Path]:
    """Write one figure and what belongs to it, and return the files.

    Numbers of the CSV have six significant digits.

    Raises:
        OutputError: a file exists (without ``force``), or the place cannot be written.
    """
    stem = f"{recipe.stem}_{drawn.name}" if drawn.name else recipe.stem
    text = textwrap.fill(f"{caption_head(recipe)} {drawn.caption}", CAPTION_WIDTH, break_on_hyphens=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write into {folder}: {error.strerror or error}.") from error
    with contextlib.ExitStack() as together:

        def place(ending: str) -> Path:
            return together.enter_context(atomic_file(folder / f"{stem}{ending}", force))

        made = [folder / f"{stem}{ending}" for ending in (".csv", ".txt")]
        drawn.frame.to_csv(place(".csv"), index=False, float_format="%.6g")
        place(".txt").write_text(text + "\n", encoding="utf-8")
        if drawn.compact is not None:
            drawn.compact.to_parquet(place(".parquet"), index=False, compression="zstd")
            made.append(folder / f"{stem}.parquet")
        return sorted([*made, *save_figure(drawn.figure, folder / stem, force=force)])


def caption_head(recipe: Recipe) -> str:
    """Beginning of a caption."""
    number = f"Fig. {recipe.id}" if recipe.id[0].isdigit() else recipe.id.replace("table", "Table ")
    return f"{number}. {recipe.title}."
