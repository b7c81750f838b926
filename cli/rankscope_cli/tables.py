"""Table layout and cell formatting for 80-column terminals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MISSING = "–"
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


def figures(value: float | None, digits: int = 3) -> str:
    """Format a number with ``digits`` significant digits, avoiding exponents where possible.

    >>> figures(0.12345), figures(123.45), figures(None), figures(float("nan")), figures(12345.6), figures(9.996)
    ('0.123', '123', '–', '–', '12346', '10.0')
    """
    if value is None or not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e6:
        rounded = float(f"{value:.{digits - 1}e}")
        places = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
        return f"{value:.{places}f}"
    return f"{value:.{digits - 1}e}"


def ratio_text(value: float | None, places: int = 2) -> str:
    """Format a ratio with ``places`` decimals.

    >>> ratio_text(0.5), ratio_text(None)
    ('0.50', '–')
    """
    return MISSING if value is None or not math.isfinite(value) else f"{value:.{places}f}"


def interval(ends: tuple[float, float] | None, places: int = 3) -> str:
    """Format the ends of an interval.

    >>> interval((0.9, 1.12345)), interval((0.9, 1.1), 2), interval(None)
    ('0.900–1.123', '0.90–1.10', '–')
    """
    if ends is None or not all(map(math.isfinite, ends)):
        return MISSING
    return f"{ends[0]:.{places}f}–{ends[1]:.{places}f}"


def size(count: int) -> str:
    """Format a number of bytes.

    >>> size(512), size(15_900_000), size(999_960)
    ('512 B', '15.9 MB', '1.0 MB')
    """
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if round(value, 1) < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.2f} GB"
