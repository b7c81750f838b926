"""Counts of the long runs of `tests.fuzz` and `tests.faults`, saved with their date, commit, command and machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "benchmarks"))


def save(counts: dict[str, Any], module: str, file: Path) -> None:
    """Write the counts of a module's run as JSON."""
    from provenance import whence

    words = [f"python -m {module}", *sys.argv[1:]]
    file.write_text(json.dumps({**whence(" ".join(words), "src", "eval", "cli", "tests"), **counts}, indent=1) + "\n")
