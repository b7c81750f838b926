"""The tests that the page on faults names are there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_the_tests_that_the_page_names_are_there() -> None:
    page = (TESTS.parent / "docs/reference/robustness.md").read_text(encoding="utf-8")
    named = re.findall(r"`(?:tests/)?([\w/]+/test_\w+\.py)`", page)
    assert len(named) > 10
    assert [one for one in named if not (TESTS / one).is_file()] == []
