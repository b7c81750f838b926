"""The page of agreement with published work names tests that exist, and every figure that is said to agree."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE, FIGURES = ROOT / "docs/reference/agreement.md", ROOT / "docs/figures.md"
pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="the docs are not beside the tests")
NODE = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_named_test_exists() -> None:
    named = NODE.findall(PAGE.read_text("utf-8"))
    assert len(named) > 40
    for file in {file for file, _ in named}:
        tree = ast.parse((ROOT / file).read_text("utf-8"))
        there = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert {name for path, name in named if path == file} <= there, file


def test_every_row_has_its_proof() -> None:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    rows = [row for row in rows if "shown by" not in row]
    assert len(rows) > 40
    assert all(NODE.search(row) or "above |" in row for row in rows)


def test_every_figure_that_agrees_is_listed_and_no_other() -> None:
    claimed = set(re.findall(r"^\*\*(\w+) – (?:agrees|shows)", FIGURES.read_text("utf-8"), flags=re.MULTILINE))
    section = PAGE.read_text("utf-8").split("| figure |", 1)[1].split("\n\n", 1)[0]
    listed = {name for row in section.splitlines()[2:] for name in row.split("|")[1].replace(" ", "").split(",")}
    assert len(claimed) > 10
    assert listed == claimed
