"""Rows of an evaluation that is not finished, so that an interrupt or a failure costs one row and not hours."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rankscope import __version__
from rankscope.io.run_store import RunStore
from rankscope_eval.forecasters import Forecaster
from rankscope_eval.suites import Task

SCHEMA = "rankscope/eval-rows@1"


def kept_rows(folder: str | Path) -> RunStore:
    """The store of rows in a folder; each has its `row_key` as name."""
    return RunStore(folder, "rows of an unfinished evaluation", SCHEMA, {}, items="rows")


def row_key(settings: Mapping[str, Any], task: Task, files: Sequence[Path], forecaster: Forecaster) -> str | None:
    """Name of a row, the same for what has the same scores; None where the model does not say what it is.

    A row is taken again only where everything that decides its scores is the same: the settings, the task and its
    files, the model and its files (by size and time of change). A model that names no files is never taken again.
    """
    if forecaster.files is None:
        return None
    parts = [__version__, dict(settings), asdict(task), _states(files), forecaster.name, _states(forecaster.files)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _states(files: Sequence[Path]) -> list[tuple[str, int, int]]:
    states = [(path.name, path.stat()) for path in files]
    return [(name, state.st_size, state.st_mtime_ns) for name, state in states]
