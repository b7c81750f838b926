"""Parts of the page as data: tables, heat maps, key numbers, texts; ``page.html`` says how they are drawn."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from markupsafe import Markup

from rankscope.families.sites import LETTERS, SCOPES
from rankscope_eval.numbers import MISSING, percent

LEVELS = 10
"""Shades of a heat map; `page.css` gives each its colours."""
SHORT = 12
"""Rows of a table that is not torn between printed pages."""

NOTHING = Markup()


@dataclass(frozen=True)
class Cell:
    """A cell: what it shows, the number that it sorts by, and its tone: ``better``, ``worse`` or ``open``, or none."""

    shown: str
    key: float | None = None
    tone: str = ""


@dataclass(frozen=True)
class KeyNumber:
    """A tile of the summary: a number, what it is, and in words and tone what is to be thought of it."""

    value: str
    says: str
    verdict: str = ""
    tone: str = ""


Row: TypeAlias = "list[str | Cell]"
Shade: TypeAlias = "tuple[int, str, str] | None"
"""Level, text, and what is shown under the pointer."""


@dataclass(frozen=True)
class Table:
    """A table; columns in which nothing is known are left out.

    Attributes:
        caption: what it shows, in one line.
        heads: titles of the columns; the first column holds the titles of the rows.
        rows: texts or cells.
        name: unique on the page, letters and hyphens.
        texts: columns after the first that hold text; the others hold numbers, which stand right.
    """

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    name: str
    texts: Sequence[int] = ()

    @property
    def known(self) -> list[tuple[int, str, bool]]:
        """Columns that are shown: place, title, and whether they hold numbers."""
        columns = [place for place in range(len(self.heads)) if place == 0 or not self._is_empty(place)]
        return [(place, self.heads[place], place not in {0, *self.texts}) for place in columns]

    @property
    def kinds(self) -> str:
        """Its classes."""
        return " ".join(["sortable"] * (len(self.rows) > 1) + ["short"] * (len(self.rows) <= SHORT))

    @property
    def cells(self) -> list[list[Cell]]:
        """Rows of cells."""
        return [[one if isinstance(one, Cell) else Cell(one) for one in row] for row in self.rows]

    def _is_empty(self, place: int) -> bool:
        return bool(self.rows) and all(row[place].shown == MISSING for row in self.cells)


@dataclass(frozen=True)
class Heat:
    """A map of shares as a table: every cell shows its share in percent, on a shade that grows with it."""

    name: str
    caption: str
    heads: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Shade]]]


@dataclass(frozen=True)
class Part:
    """One part of a section; whatever it has is shown in this order.

    Attributes:
        title: heading.
        numbers: key numbers.
        points: sentences in a list.
        text: a paragraph.
        notes: small paragraphs.
        maps: heat maps side by side.
        lead: a table before the charts.
        charts: drawings with their captions.
        tables: tables after them.
        left: a note on what is left out.
        folded: a table that opens on a click, and the words to click on; it is always there in print.
        code: lines of a program.
    """

    title: str = ""
    numbers: Sequence[KeyNumber] = ()
    points: Sequence[str] = ()
    text: str = ""
    notes: Sequence[str] = ()
    maps: Sequence[Heat] = ()
    lead: Table | None = None
    charts: Sequence[Markup] = ()
    tables: Sequence[Table] = ()
    left: str = ""
    folded: tuple[str, Table] | None = None
    code: Markup = NOTHING


@dataclass(frozen=True)
class Section:
    """One section: its anchor, heading, name in the navigation, and parts; one without parts is left out."""

    name: str
    title: str
    short: str
    parts: Sequence[Part]


def number(value: float | None, shown: str) -> Cell:
    """A number cell; what is missing sorts last."""
    missing = value is None or not math.isfinite(value)
    return Cell(MISSING if missing else shown, None if missing else float(value or 0.0))


def bar(share: float, shown: str) -> Markup:
    """A number on a bar as long as its share."""
    return Markup('<span class="bar" style="--share:{:.1f}%">{}</span>').format(100 * min(max(share, 0.0), 1.0), shown)


def heat(name: str, stack: str, says: str, cells: Mapping[tuple[str, int | None], tuple[float, str]]) -> Heat:
    """Map the matrices of a stack, one row per role and one column per layer.

    Args:
        name: unique on the page.
        stack: begins the caption.
        says: what is shown, the caption's rest.
        cells: role and layer → share in [0, 1], and what is shown under the pointer.
    """
    layers = sorted({layer for _, layer in cells if layer is not None})
    rows = []
    for role in sorted({role for role, _ in cells}, key=role_order):
        line: list[Shade] = []
        for layer in layers:
            share, hint = cells.get((role, layer), (None, ""))
            where = f"{stack} layer {layer}, {role_name(role)}"
            level = round(LEVELS * min(max(share or 0.0, 0.0), 1.0))
            line.append(None if share is None else (level, percent(share).removesuffix(" %"), f"{where}: {hint}"))
        rows.append((role_name(role), line))
    return Heat(name, f"{stack.capitalize()}: {says}", ["matrix", *map(str, layers)], rows)


_UNIT = re.compile(r"(?<=[0-9]) (?=(?:%|[kMG]?B|[kMG]|m?s|min|MiB|GiB)(?![\w.]))")


def unbroken(text: str) -> str:
    """Put no-break spaces between numbers and their units.

    >>> unbroken("15.9 MB in 12 ms, 95 % of 3 sets").split(" ")
    ['15.9\\xa0MB', 'in', '12\\xa0ms,', '95\\xa0%', 'of', '3', 'sets']
    """
    return _UNIT.sub("\u00a0", text)


def printable(text: str) -> str:
    """Put the replacement character for control characters and lone surrogates, which HTML cannot hold."""
    return "".join(
        c if c in "\n\t" or (c >= " " and not "\ud800" <= c <= "\udfff" and c != "\x7f") else "\ufffd" for c in text
    )


def role_name(role: str) -> str:
    """Name of a role.

    >>> role_name("self.q"), role_name("mlp_in")
    ('self-attention Q', 'mlp in')
    """
    scope, _, letter = role.partition(".")
    return f"{SCOPES.get(scope, scope)} {letter.upper()}" if letter else role.replace("_", " ")


def role_order(role: str) -> tuple[int, int, str]:
    """Key that puts attention first, its matrices as Q, K, V, O.

    >>> sorted(["mlp_in", "cross.q", "self.o", "self.k"], key=role_order)
    ['self.k', 'self.o', 'cross.q', 'mlp_in']
    """
    scope, _, letter = role.partition(".")
    scopes = list(SCOPES)
    at = scopes.index(scope) if letter and scope in scopes else len(scopes)
    return at, LETTERS.index(letter) if letter in LETTERS else len(LETTERS), role
