"""Counts of the long runs of `tests.fuzz` and `tests.faults`: files that the same command goes on with."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def load(file: Path | None, settings: dict[str, Any]) -> dict[str, Any]:
    """Counts of an earlier run by name, none where there is no file.

    Raises:
        SystemExit: the earlier run had other settings.
    """
    if file is None or not file.is_file():
        return {}
    found = json.loads(file.read_text())
    if found["settings"] != settings:
        raise SystemExit(
            f"{file} counts a run with {found['settings']}, and this one has {settings}: name another file."
        )
    counts: dict[str, Any] = found["counts"]
    return counts


def save(file: Path, module: str, settings: dict[str, Any], counts: dict[str, Any]) -> None:
    """Write counts by name, with date, commit, command and machine."""
    sys.path.append(str(BENCHMARKS))
    from provenance import whence

    command = " ".join([f"python -m {module}", *sys.argv[1:]])
    made = {**whence(command, "src", "eval", "cli", "tests"), "settings": settings, "counts": counts}
    file.write_text(json.dumps(made, indent=1) + "\n")
