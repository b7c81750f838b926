"""A drawn figure as files: PNG, SVG, the numbers as CSV, the caption as text; all of them appear, or none."""

from __future__ import annotations

import os
import tempfile
import textwrap
from pathlib import Path

from rankscope.errors import OutputError
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
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".figures.", suffix=".partial", dir=folder) as place:
            base = Path(place) / stem
            save_figure(drawn.figure, base)
            drawn.frame.to_csv(base.with_name(f"{stem}.csv"), index=False, float_format="%.6g")
            text = textwrap.fill(f"{caption_head(recipe)} {drawn.caption}", CAPTION_WIDTH, break_on_hyphens=False)
            base.with_name(f"{stem}.txt").write_text(text + "\n", encoding="utf-8")
            if drawn.compact is not None:
                drawn.compact.to_parquet(base.with_name(f"{stem}.parquet"), index=False, compression="zstd")
            made = sorted(Path(place).iterdir())
            for file in made:
                if (folder / file.name).exists() and not force:
                    raise OutputError(f"--out: {folder / file.name} exists already: choose another folder, or --force.")
            return [_moved(file, folder / file.name) for file in made]
    except OSError as error:
        raise OutputError(f"cannot write into {folder}: {error.strerror or error}.") from error


def caption_head(recipe: Recipe) -> str:
    """Beginning of a caption."""
    number = f"Fig. {recipe.id}" if recipe.id[0].isdigit() else recipe.id.replace("table", "Table ")
    return f"{number}. {recipe.title}."


def _moved(file: Path, target: Path) -> Path:
    os.replace(file, target)
    return target
