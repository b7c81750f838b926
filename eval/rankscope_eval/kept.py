"""Rows of an unfinished evaluation: what names one, and its use on the next run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from rankscope import __version__
from rankscope.io.run_store import RunStore

Record = TypeVar("Record")


def row_key(kind: str, model: str, files: Iterable[Path] | None, *parts: Any) -> str | None:
    """Return a hash of all that determines a row; None for models without known files.

    Args:
        kind: benchmark.
        model: name of the model.
        files: files of the model, known by name, size and time.
        parts: settings, task and data.
    """
    if files is None:
        return None
    text = json.dumps([kind, __version__, model, states(files), *parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def states(files: Iterable[Path]) -> list[tuple[str, int, int]]:
    """Name, size and time of change of files, and of the files in folders."""
    found = [one for file in files for one in (sorted(file.rglob("*")) if file.is_dir() else [file])]
    return [(one.name, one.stat().st_size, one.stat().st_mtime_ns) for one in found if one.is_file()]


def reused(store: RunStore | None, key: str | None, kind: type[Record], make: Callable[[], Record]) -> Record:
    """Return a stored row, or make and store it."""
    earlier = None if store is None or key is None else store.get(key, kind)
    if earlier is not None:
        return earlier
    made = make()
    if store is not None and key is not None:
        store.put(key, made)
    return made
