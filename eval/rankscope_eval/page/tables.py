"""Tables of the page: with a caption, headers that say what they head, and cells that know how they sort."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from rankscope_eval.page.html import Child, Markup, element
from rankscope_eval.page.numbers import MISSING

LEVELS = 10
"""Shades of a heat map; `page.css` gives each its colours."""
SHORT = 12
"""Rows of a table that is not torn between printed pages."""


@dataclass(frozen=True)
class Cell:
    """A cell: what it shows, and the number that it sorts by."""

    shown: Child
    key: float | None = None


Row: TypeAlias = "list[str | Cell]"


@dataclass(frozen=True)
class Table:
    """A table; columns in which nothing is known are left out.

    Attributes:
        caption: what it shows, in one line.
        heads: titles of the columns; the first column holds the titles of the rows.
        rows: texts or cells; a cell with a key, or without a text, is a number and stands right.
        name: unique on the page, letters and hyphens.
        texts: columns after the first that hold text.
    """

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    name: str
    texts: Sequence[int] = field(default=())

    def render(self) -> Markup:
        """The table in a frame that scrolls where the page is too narrow for it."""
        left = {0, *self.texts}
        known = [column for column in range(len(self.heads)) if not self._is_empty(column)]
        heads = [
            element("th", self.heads[column], scope="col", class_=None if column in left else "number")
            for column in known
        ]
        caption = f"{self.name}-caption"
        kinds = ["sortable"] * (len(self.rows) > 1) + ["short"] * (len(self.rows) <= SHORT)
        table = element(
            "table",
            element("caption", self.caption, id=caption),
            element("thead", element("tr", heads)),
            element("tbody", [_row(row, known, left) for row in self.rows]),
            class_=" ".join(kinds) or None,
        )
        return element("div", table, class_="scroll", tabindex=0, role="region", aria_labelledby=caption)

    def _is_empty(self, column: int) -> bool:
        cells = [row[column] for row in self.rows]
        shown = [cell.shown if isinstance(cell, Cell) else cell for cell in cells]
        return column > 0 and bool(shown) and all(one == MISSING for one in shown)


def number(value: float | None, shown: str) -> Cell:
    """A number cell; what is missing sorts last."""
    missing = value is None or not math.isfinite(value)
    return Cell(MISSING if missing else shown, None if missing else float(value or 0.0))


def heat(
    name: str, caption: str, heads: Sequence[str], rows: Sequence[tuple[str, Sequence[tuple[float, str, str] | None]]]
) -> Markup:
    """A map of shares as a table: every cell shows its share in percent, on a shade that grows with it.

    Args:
        name: unique on the page.
        caption: what it shows.
        heads: of the first column and of the others.
        rows: title and cells: share in [0, 1], text, and what the pointer is told.
    """
    caption_id = f"{name}-caption"
    body = [element("tr", element("th", title, scope="row"), [_shade(cell) for cell in cells]) for title, cells in rows]
    table = element(
        "table",
        element("caption", caption, id=caption_id),
        element("thead", element("tr", [element("th", head, scope="col") for head in heads])),
        element("tbody", body),
        class_="heat",
    )
    return element("div", table, class_="scroll", tabindex=0, role="region", aria_labelledby=caption_id)


def folded(title: str, *children: Child) -> Markup:
    """Content that opens on a click; it is always there in print."""
    return element("details", element("summary", title), children)


def bar(share: float, shown: str) -> Markup:
    """A number on a bar as long as its share."""
    width = f"--share:{100 * min(max(share, 0.0), 1.0):.1f}%"
    return element("span", shown, class_="bar", style=width)


def _row(row: Sequence[str | Cell], known: Sequence[int], left: set[int]) -> Markup:
    cells = []
    for column in known:
        value = row[column]
        cell = value if isinstance(value, Cell) else Cell(value)
        key = None if cell.key is None else repr(cell.key)
        if column == 0:
            cells.append(element("th", cell.shown, scope="row", data_key=key))
        else:
            cells.append(element("td", cell.shown, class_=None if column in left else "number", data_key=key))
    return element("tr", cells)


def _shade(cell: tuple[float, str, str] | None) -> Markup:
    if cell is None:
        return element("td", class_="none")
    share, shown, title = cell
    level = round(LEVELS * min(max(share, 0.0), 1.0))
    return element("td", shown, class_=f"h{level}", title=title)
