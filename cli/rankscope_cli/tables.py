"""Table layout and cell formatting for 80-column terminals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_STACKS = {"encoder": "enc", "decoder": "dec"}


def plain_table(title: str | None = None, caption: str | None = None) -> Table:
    """Create an empty table without vertical rules or padding at the edges."""
    from rich import box
    from rich.table import Table

    return Table(
        title=title,
        caption=caption,
        title_justify="left",
        caption_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        show_edge=False,
        header_style="bold",
    )


def add_columns(table: Table, names: Sequence[str], left: int = 1, folds: bool = False) -> None:
    """Add columns: the first ``left`` left-aligned, the rest right-aligned; only the first may fold."""
    for position, name in enumerate(names):
        if position < left:
            first = folds and position == 0
            table.add_column(name, overflow="fold", no_wrap=not first, min_width=14 if first else None)
        else:
            table.add_column(name, justify="right", no_wrap=True, overflow="fold")


def print_table(table: Table, console: Console) -> None:
    """Print a table without cropping: on a narrow console lines overflow rather than lose digits."""
    from rich.cells import cell_len

    for column in table.columns:
        cells = [column.header, *column.cells]
        longest = max(cell_len(line) for cell in cells for line in str(cell).splitlines() or [""])
        column.min_width = longest if column.no_wrap else min(longest, column.min_width or longest)
    console.print(table, crop=False)


def width(table: Table, console: Console) -> int:
    """Return the unwrapped width of a table in columns."""
    from rich.measure import Measurement

    return Measurement.get(console, console.options.update(max_width=10_000), table).maximum


def where(stack: str, layer: int | None) -> str:
    """Return the short name of a layer.

    >>> where("encoder", 3), where("decoder", None)
    ('enc 3', 'dec')
    """
    short = _STACKS.get(stack, stack)
    return short if layer is None else f"{short} {layer}"
