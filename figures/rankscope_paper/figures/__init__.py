"""The figures of the paper, one recipe each: measured on a checkpoint, or read from a saved result, then drawn.

>>> from rankscope_paper.figures import FIGURES, draw
>>> FIGURES["15"].title
'Chebyshev embeddings in two dimensions'
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from rankscope.errors import OptionError, RankscopeError, unknown_choice
from rankscope_paper.figures._recipes import FIGURES
from rankscope_paper.figures._record import CARRIED, Drawn, Recipe, Settings, carried
from rankscope_paper.figures._write import caption_head, refuse_existing_files, write_drawn

__all__ = [
    "FIGURES",
    "CARRIED",
    "Drawn",
    "FigureState",
    "Recipe",
    "Settings",
    "caption_head",
    "carried",
    "choose",
    "draw",
    "draw_to",
    "refuse_existing_files",
    "state",
    "write_drawn",
]


@dataclass(frozen=True)
class FigureState:
    """Whether a recipe can be drawn here without naming models or data.

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
        """Whether nothing is missing."""
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
        RankscopeError: a model or saved result cannot be had or used.
    """
    given = {
        "model": bool(settings.models),
        "data": settings.data is not None,
        "quick": settings.quick,
        "rerun": settings.rerun,
    }
    for option, present in given.items():
        if present and option not in recipe.takes:
            takes = ", ".join(f"--{one}" for one in recipe.takes) or "no options"
            raise OptionError(f"--{option} has no meaning for figure {recipe.id}, which takes {takes}.")
    if settings.models and settings.data is not None and recipe.id != "1":
        raise OptionError(f"figure {recipe.id}: give --model or --data, not both.")
    if recipe.most_models is not None and len(settings.models) > recipe.most_models:
        raise OptionError(f"figure {recipe.id} takes at most {recipe.most_models} models, got {len(settings.models)}.")
    return recipe.draw(settings)


def state(recipe: Recipe) -> FigureState:
    """Say whether a recipe can be drawn as it is."""
    try:
        models = recipe.models() if recipe.source == "models" else ()
        for name in recipe.data:
            carried(name, recipe.make)
    except RankscopeError as error:
        return FigureState(recipe, recipe.data, str(error))
    return FigureState(recipe, (*models, *recipe.data))


def draw_to(folder: str | Path, number: str, settings: Settings | None = None, *, force: bool = True) -> list[Path]:
    """Draw one figure into a folder and return the files: what the recipes in ``figures/`` call.

    Raises:
        RankscopeError: see `choose`, `draw` and `write_drawn`.
    """
    (recipe,) = choose([number])
    files: list[Path] = []
    for drawn in draw(recipe, replace(settings or Settings())):
        files += write_drawn(recipe, drawn, Path(folder), force=force)
    return files
