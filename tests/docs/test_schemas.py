"""Every documented outline of ``--json`` is that of the document that the verb prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_documents_have_the_documented_shapes() -> None:
    done = subprocess.run(
        [sys.executable, "docs/run_blocks.py", "reference/schemas.md"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
