"""The tables of the page of benchmarks are what the saved results say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rankscope_paper.figures import CARRIED

FILE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
HEAD = "| method | 0.5 |"
CALIBRATIONS = 3
pytestmark = pytest.mark.skipif(not FILE.is_file(), reason="the docs are not beside the tests")


def table(name: str) -> dict[str, dict[float, str]]:
    """Cells by label and ratio of the table that follows the link to a model's saved results."""
    link = f"(../figures/rankscope_paper/figures/data/table2_{name}.json)"
    lines = FILE.read_text("utf-8").split(link, 1)[1].splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(HEAD))
    end = next(number for number in range(start, len(lines)) if not lines[number].startswith("|"))
    head, _, *body = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:end])
    return {label: dict(zip(map(float, head[1:]), cells, strict=True)) for label, *cells in body}


def label(row: dict[str, Any]) -> str:
    name = f"`{row['method']}`"
    if row["heal_steps"]:
        return f"{name}, {row['heal_steps']} steps"
    return f"{name}, energy" if (row["method"], row["allocation"]) == ("joint", "energy") else name


def cell(row: dict[str, Any]) -> str:
    score, seeds = row["relative_WQL"], len(row["seeds"])
    spread = [f"{score['min']:.3f}–{score['max']:.3f}"] if seeds > 1 else []
    fewer = [f"n = {seeds}"] if seeds not in (0, CALIBRATIONS) else []
    return "<br>".join([f"{score['median']:.3f}", *spread, *fewer])


@pytest.mark.parametrize(("name", "in_the_text"), [("bundled-bolt", set()), ("bundled", {"`joint+healed`, 100 steps"})])
def test_the_tables_are_what_was_measured(name: str, in_the_text: set[str]) -> None:
    saved: dict[str, dict[float, str]] = {}
    for row in json.loads((CARRIED / f"table2_{name}.json").read_text("utf-8"))["rows"]:
        if label(row) not in in_the_text:
            saved.setdefault(label(row), {})[row["ratio"]] = cell(row)
    assert table(name) == saved
