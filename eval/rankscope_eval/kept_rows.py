"""Rows of an evaluation that is not finished, so that an interrupt or a failure costs one row and not hours."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rankscope import __version__
from rankscope.errors import DataError
from rankscope.io.atomic import sync
from rankscope_eval.forecasters import Forecaster
from rankscope_eval.report import EvalRow
from rankscope_eval.suites import Task

SCHEMA = "rankscope/eval-row@1"


class KeptRows:
    """A file with one JSON line per finished row; a line that a kill left half written is no row.

    A row is taken again only where everything that decides its scores is the same: the settings, the task and its
    files, the model and its files (by size and time of change). A model that names no files is never taken again.

    Args:
        file: where.
        settings: what all rows share.
        resume: take the rows that are there; otherwise they are dropped.

    Raises:
        DataError: the file cannot be read, or holds something else.
    """

    def __init__(self, file: str | Path, settings: Mapping[str, Any], resume: bool = False) -> None:
        self.file, self._settings = Path(file), dict(settings)
        self._rows: dict[str, EvalRow] = _read(self.file) if resume and self.file.exists() else {}
        if not resume:
            self.file.unlink(missing_ok=True)

    def __len__(self) -> int:
        """Rows that are kept."""
        return len(self._rows)

    def key(self, task: Task, files: Sequence[Path], forecaster: Forecaster) -> str | None:
        """Name of a row, the same for what has the same scores; None where the model does not say what it is."""
        if forecaster.files is None:
            return None
        parts = [__version__, self._settings, asdict(task), _states(files), forecaster.name, _states(forecaster.files)]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]

    def get(self, key: str) -> EvalRow | None:
        """The row of a key, if it is there."""
        return self._rows.get(key)

    def add(self, key: str, row: EvalRow) -> None:
        """Keep a row; it is on disk when this returns."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        sums = None if row.sums is None else row.sums.tolist()
        line = json.dumps({"schema": SCHEMA, "key": key, "row": row.plain(), "sums": sums}) + "\n"
        handle = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            os.write(handle, line.encode())
            os.fsync(handle)
        finally:
            os.close(handle)
        if not self._rows:
            sync(self.file.parent)
        self._rows[key] = row


def _read(file: Path) -> dict[str, EvalRow]:
    rows: dict[str, EvalRow] = {}
    try:
        lines = file.read_bytes().splitlines(keepends=True)
        for line in lines:
            if line.endswith(b"\n"):
                found = json.loads(line)
                if found["schema"] != SCHEMA:
                    raise KeyError("schema")
                kept = found.get("sums")  # rows from before there were intervals have none
                sums = None if kept is None else np.array(kept)
                rows[found["key"]] = EvalRow(**found["row"], sums=sums)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file} holds no rows of an evaluation: delete it, or leave out --resume.") from error
    if lines and not lines[-1].endswith(b"\n"):  # what is appended next begins a line of its own
        file.write_bytes(b"".join(lines[:-1]))
    return rows


def _states(files: Sequence[Path]) -> list[tuple[str, int, int]]:
    states = [(path.name, path.stat()) for path in files]
    return [(name, state.st_size, state.st_mtime_ns) for name, state in states]
