"""The figures of the paper, one recipe each: measured on a checkpoint, or read from a saved result, then drawn.

>>> from rankscope_paper.figures import FIGURES, draw
>>> FIGURES["15"].title
'Chebyshev embeddings in two dimensions'
"""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import ClassVar

from rankscope.errors import DataError, OptionError, OutputError, RankscopeError, one_line, unknown_choice
from rankscope.io.atomic import atomic_file, sweep
from rankscope.plots import save_figure
from rankscope_paper.figures import (
    embedding,
    experiments,
    heads,
    lab_ranks,
    layers,
    overview,
    results,
    start,
    strategies,
    sweeps,
    values,
)
from rankscope_paper.figures.recipe import CARRIED, Drawn, Recipe, Settings, carried

__all__ = [
    "FIGURES",
    "CARRIED",
    "Drawn",
    "FigureState",
    "Recipe",
    "Settings",
    "caption_head",
    "carried",
    "check_options",
    "choose",
    "draw",
    "refuse_existing_files",
    "state",
    "write_drawn",
]

FIGURES: dict[str, Recipe] = {
    one.id: one
    for one in (
        *(overview.fig1, embedding.fig2a, embedding.fig2b, embedding.fig2c, sweeps.fig3a, embedding.fig3b),
        *(sweeps.fig4a, sweeps.fig4b, sweeps.fig4c, layers.fig5a, layers.fig5b, layers.fig5c),
        *(results.fig6, values.fig7, strategies.fig8, experiments.fig9, experiments.fig10, experiments.fig11),
        *(layers.fig12, layers.fig13, heads.fig14, values.fig15, heads.fig16),
        *(results.table, lab_ranks.study, start.study),
    )
}
"""Every figure by its number in the paper."""

ENDINGS = (".png", ".svg", ".csv", ".txt", ".parquet")
CAPTION_WIDTH = 100
"""Columns of a caption's file."""


@dataclass(frozen=True)
class FigureState:
    """A recipe, and what it lacks to be drawn here without naming models or data.

    Attributes:
        recipe: which one.
        uses: the models or saved results that it would use.
        missing: what is missing and how to get it, one line; empty where nothing is.
    """

    recipe: Recipe
    uses: tuple[str, ...]
    missing: str = ""

    @property
    def ready(self) -> bool:
        """True if nothing is missing."""
        return not self.missing

    KEYS: ClassVar = (
        *("recipe.id", "recipe.title", "paper=recipe.shows", "recipe.source", "uses", "ready", "missing"),
        *("recipe.make", "recipe.published"),
    )


def choose(ids: Iterable[str]) -> tuple[Recipe, ...]:
    """Find recipes by their numbers; ``fig4a`` and ``4A`` mean ``4a``.

    Raises:
        OptionError: an unknown number.

    >>> [recipe.id for recipe in choose(["fig2a", "3B"])]
    ['2a', '3b']
    """
    found = []
    for given in ids:
        name = given.lower().removeprefix("fig").lstrip("._ ")
        if name not in FIGURES:
            raise OptionError(unknown_choice("figure", given, FIGURES))
        found.append(FIGURES[name])
    return tuple(dict.fromkeys(found))


def draw(recipe: Recipe, settings: Settings) -> tuple[Drawn, ...]:
    """Draw a recipe, after a check that the settings have a meaning for it.

    Raises:
        OptionError: a setting has none, or there are too many models.
        RankscopeError: a model or saved result cannot be loaded or used.
    """
    given = {
        "model": bool(settings.models),
        "data": settings.data is not None,
        "quick": settings.quick,
        "rerun": settings.rerun,
        "seed": settings.seed != 0,
    }
    check_options((recipe,), given, settings)
    both = bool(recipe.models and recipe.data)
    if settings.models and settings.data is not None and not both:
        raise OptionError(f"figure {recipe.id}: give --model or --data, not both.")
    if recipe.most_models is not None and len(settings.models) > recipe.most_models:
        raise OptionError(f"figure {recipe.id} takes at most {recipe.most_models} models, got {len(settings.models)}.")
    if not settings.models and (settings.data is None or both):
        settings = replace(settings, models=recipe.own_models())
    try:
        drawn = recipe.draw(settings)
    except RankscopeError:
        raise
    except Exception as error:  # sound by its schema, and still no such result: empty, ragged, of other sizes
        if settings.data is None:
            raise
        told = one_line(error)[:120]
        raise DataError(f"{settings.data} cannot be drawn as figure {recipe.id} ({told}): make it again.") from error
    return (drawn,) if isinstance(drawn, Drawn) else drawn


def check_options(recipes: Sequence[Recipe], given: Mapping[str, bool], settings: Settings) -> None:
    """Refuse an option that was given and changes none of the figures.

    Raises:
        OptionError: there is one.
    """
    numbers = ", ".join(recipe.id for recipe in recipes)
    for option, present in given.items():
        if not present or any(recipe.heeds(option, settings) for recipe in recipes):
            continue
        if any(option in recipe.takes for recipe in recipes):
            way = "leave one out" if settings.data is not None else "add --rerun"
            raise OptionError(
                f"--{option} does not change the saved result that figure {numbers} is drawn from: {way}."
            )
        takes = ", ".join(f"--{one}" for one in dict.fromkeys(one for recipe in recipes for one in recipe.takes))
        raise OptionError(f"--{option} does not apply to figure {numbers}, which takes {takes or 'no options'}.")


def state(recipe: Recipe) -> FigureState:
    """State of a recipe: models or results that it would use, and those missing."""
    try:
        models = recipe.own_models()
        for name in recipe.data:
            carried(name, recipe.make)
    except RankscopeError as error:
        return FigureState(recipe, recipe.data, str(error))
    return FigureState(recipe, (*models, *recipe.data))


def refuse_existing_files(recipe: Recipe, settings: Settings, folder: Path, force: bool) -> None:
    """Raise `OutputError` where a file of the recipe exists and may not be replaced; call it before long work."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"--out {folder} is a file: name a folder.")
    for name, ending in product(recipe.names(settings), ENDINGS):
        file = folder / f"{_stem(recipe, name)}{ending}"
        if file.exists() and not force:
            raise OutputError(f"--out: {file} exists already: choose another folder, or pass --force.")


def write_drawn(recipe: Recipe, drawn: Drawn, folder: Path, *, force: bool = False) -> list[Path]:
    """Write one figure and what belongs to it, and return the files.

    Numbers of the CSV have six significant digits.

    Raises:
        OutputError: a file exists (without ``force``), or the place cannot be written.
    """
    stem = _stem(recipe, drawn.name)
    text = textwrap.fill(f"{caption_head(recipe)} {drawn.caption}", CAPTION_WIDTH, break_on_hyphens=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write into {folder}: {error.strerror or error}.") from error
    sweep(folder)
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


def _stem(recipe: Recipe, name: str) -> str:
    return f"{recipe.stem}_{name}" if name else recipe.stem


def caption_head(recipe: Recipe) -> str:
    """Beginning of a caption."""
    number = f"Fig. {recipe.id}" if recipe.id[0].isdigit() else recipe.id.replace("table", "Table ")
    return f"{number}. {recipe.title}."
