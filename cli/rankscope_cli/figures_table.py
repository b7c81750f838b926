"""How the list of figures looks in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rankscope_cli.tables import add_columns, plain_table, print_table

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope_paper.figures import FigureState


def show_figures(states: Sequence[FigureState], console: Console) -> None:
    """Print one line per figure: number, title, what it is drawn from, and below the table what is missing."""
    table = plain_table(caption="rankscope figures ID… --out DIR draws them; --all those that are ready.")
    add_columns(table, ["figure", "title", "drawn from", "ready"], left=4)
    for one in states:
        table.add_row(one.recipe.id, one.recipe.title, _drawn_from(one), "no" if one.missing else "yes")
    print_table(table, console)
    for one in states:
        if one.missing:
            console.print(f"{one.recipe.id}: {one.missing}", markup=False)


def _drawn_from(one: FigureState) -> str:
    if one.recipe.source == "nothing":
        return "its formula"
    if one.recipe.source == "saved":
        return "saved result"
    count = len([name for name in one.uses if name not in one.recipe.data])
    return f"{count} model{'s' if count != 1 else ''}" if count else "models"
