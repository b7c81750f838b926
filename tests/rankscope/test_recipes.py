"""The code in docs/recipes.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"


@pytest.mark.skipif(not PAGE.is_file(), reason="the docs are not beside the tests")
def test_every_block_of_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"(?<!-->\n)```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), {})
    assert "torch.Size([2, 24, 3]) torch.Size([2, 24])" in capsys.readouterr().out
