"""The folder of an unfinished run: snapshots that are whole or do not count, and the lock of the process in it."""

from __future__ import annotations

import contextlib
import errno
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rankscope.errors import OutputError
from rankscope.io.atomic import atomic_file, sync

SUFFIX = ".run"
"""A run into ``out`` keeps its snapshots in ``out.run`` until it is done."""
SEAL = "complete.json"
"""Written last: a snapshot without it was cut off."""
KEPT = 2
"""Snapshots that are kept."""
KEPT_MODELS = "kept"
"""Folder of the models that the config asks to keep; it goes into the finished checkpoint."""
LOCK = "lock"
DIVERGED = "diverged.json"
"""Says that the run stopped because its loss or weights were not finite; the next attempt removes it."""


@dataclass(frozen=True)
class Snapshot:
    """A point from which a run goes on exactly.

    Attributes:
        folder: weights, optimiser, schedule and random states, as transformers' Trainer writes them.
        step: optimiser steps taken.
        loss_total: sum of the losses since the last log line.
        loss_steps: steps in that sum.
    """

    folder: Path
    step: int
    loss_total: float
    loss_steps: int


def run_folder(out: Path) -> Path:
    """Return the folder that the run into ``out`` keeps its snapshots in."""
    return out.with_name(f"{out.name}{SUFFIX}")


def seal(folder: Path, loss_total: float, loss_steps: int) -> None:
    """Declare a snapshot whole: every file in it is synced, then named with its size in the seal."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SEAL)
    for path in files:
        sync(path)
    record = {
        "loss_total": loss_total,
        "loss_steps": loss_steps,
        "files": {str(path.relative_to(folder)): path.stat().st_size for path in files},
    }
    with atomic_file(folder / SEAL) as path:
        path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def snapshots(run: Path) -> list[Snapshot]:
    """Whole snapshots of a run, the oldest first; the others are passed over."""
    found = [one for path in run.glob("checkpoint-*") if (one := _read(path)) is not None]
    return sorted(found, key=lambda one: one.step)


def newest(run: Path) -> Snapshot | None:
    """Return the snapshot that a resumed run goes on from, or None."""
    return next(reversed(snapshots(run)), None)


def tidy(run: Path) -> None:
    """Remove all but the newest whole snapshots; the last good one always stays."""
    kept = {one.folder for one in snapshots(run)[-KEPT:]}
    for path in run.glob("checkpoint-*"):
        if path not in kept:
            (path / SEAL).unlink(missing_ok=True)  # first, so that half a folder never counts
            shutil.rmtree(path, ignore_errors=True)


def clear(run: Path) -> None:
    """Empty the folder of a run, but for the lock of the process that holds it."""
    for one in snapshots(run):
        (one.folder / SEAL).unlink(missing_ok=True)
    for path in run.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


def mark_diverged(run: Path, problem: str) -> None:
    """Keep why a run stopped: what it goes on with may then be lowered."""
    with atomic_file(run / DIVERGED) as path:
        path.write_text(json.dumps({"problem": problem}) + "\n", encoding="utf-8")


def diverged(run: Path) -> bool:
    """Whether the last attempt at a run ended with a loss or weights that were not finite."""
    return (run / DIVERGED).exists()


@contextlib.contextmanager
def claimed(run: Path) -> Iterator[None]:
    """Hold the folder of a run, so that no second process trains into it; a killed process lets go of it.

    Raises:
        OutputError: another process holds it.
    """
    run.mkdir(parents=True, exist_ok=True)
    with (run / LOCK).open("a") as handle:
        _lock(handle.fileno(), run)
        yield


@contextlib.contextmanager
def removed_if_empty(run: Path) -> Iterator[None]:
    """Remove the folder of a run that an error ends before its first log line or snapshot: there is nothing in it."""
    try:
        yield
    except Exception:
        if not any(run.glob("checkpoint-*")) and not any(run.glob("*.csv")):
            shutil.rmtree(run, ignore_errors=True)
        raise


def _lock(handle: int, run: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):  # else a file system without locks
            raise OutputError(
                f"another process is training into {run}: wait for it, or choose another --out."
            ) from None


def _read(folder: Path) -> Snapshot | None:
    try:
        record = json.loads((folder / SEAL).read_text(encoding="utf-8"))
        whole = all((folder / name).stat().st_size == size for name, size in record["files"].items())
        step = int(folder.name.rpartition("-")[2])
        return Snapshot(folder, step, float(record["loss_total"]), int(record["loss_steps"])) if whole else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
