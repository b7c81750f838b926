"""Curves of a run as CSV files that grow by a line at a time and survive being cut off in the middle of one."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankscope.io.atomic import atomic_file

LOSSES, SCORES = "loss.csv", "validation.csv"


def append_row(file: Path, row: Mapping[str, Any]) -> None:
    """Add a line; the first one brings the header. Later rows must have the columns of the first."""
    fresh = not file.exists()
    with file.open("a", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, list(row))
        if fresh:
            writer.writeheader()
        writer.writerow(dict(row))


def read_rows(file: Path) -> list[dict[str, str]]:
    """Read the whole lines of a curve, in order; a last one that was cut off does not count."""
    if not file.exists():
        return []
    text = file.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    return list(csv.DictReader(whole.splitlines()))


def forget_after(file: Path, step: int) -> None:
    """Drop the lines of steps that will be taken again, and what was cut off."""
    if not file.exists():
        return
    kept = [row for row in read_rows(file) if int(row["step"]) <= step]
    if not kept:
        file.unlink()
        return
    with atomic_file(file) as path, path.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, list(kept[0]))
        writer.writeheader()
        writer.writerows(kept)


def last_value(file: Path, column: str) -> float:
    """Return the last entry of a column."""
    return float(read_rows(file)[-1][column])
