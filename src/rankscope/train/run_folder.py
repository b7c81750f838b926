"""Run folder of an unfinished training: sealed snapshots and resume."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope.errors import OutputError
from rankscope.io import codec
from rankscope.io.atomic import atomic_file, disk_error, refuse_existing, sweep, sync
from rankscope.io.run_store import MANIFEST, RunStore, refuse_both

SUFFIX = ".run"
"""Suffix of the run folder: a run into ``out`` keeps snapshots in ``out.run`` until it is done."""
SEAL = "complete.json"
"""Seal file, written last; a snapshot without it is incomplete."""
KEPT = 2
"""Number of snapshots to keep."""
KEPT_MODELS = "kept"
"""Folder of permanent checkpoints (``keep_steps``), moved into the finished checkpoint."""
END = ("max_steps", "decay_steps")
"""Settings that may change on resume as long as the learning rate does not depend on them yet."""
REMEDIES = ("learning_rate", "max_grad_norm")
"""Settings that may be lowered on resume after divergence; the change is recorded."""

CHECKSUMS = "checksums"
"""Setting that holds the checksums of what a run reads, by name."""


@dataclass(frozen=True)
class Snapshot:
    """Snapshot for exact resume.

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


def seal(folder: Path, loss_total: float, loss_steps: int) -> None:
    """Seal a snapshot: sync every file, then list files and sizes in the seal."""
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
    """Return the sealed snapshots of a run, oldest first."""
    found = [one for path in run.glob("checkpoint-*") if (one := _read(path)) is not None]
    return sorted(found, key=lambda one: one.step)


def newest(run: Path) -> Snapshot | None:
    """Return the snapshot to resume from, or None."""
    return next(reversed(snapshots(run)), None)


def tidy(run: Path) -> None:
    """Remove old snapshots, always keeping the last good one."""
    kept = {one.folder for one in snapshots(run)[-KEPT:]}
    for path in run.glob("checkpoint-*"):
        if path not in kept:
            (path / SEAL).unlink(missing_ok=True)  # first, so that a partially deleted folder is not valid
            shutil.rmtree(path, ignore_errors=True)


def beside(target: Path) -> Path:
    """Return the run folder of ``target``."""
    return target.with_name(f"{target.name}{SUFFIX}")


def begun_with(target: Path) -> dict[str, Any]:
    """Return the settings of the unfinished run of ``target``; empty if there is none."""
    try:
        return dict(codec.loads((beside(target) / MANIFEST).read_text(encoding="utf-8"))["settings"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


class TrainingRun:
    """Training run into a folder, with snapshots and curves in ``<out>.run`` until it is finished.

    Args:
        target: folder of the result.
        what: the run, in errors: "a training run".
        schema: of its manifest.
        settings: what the weights are a function of.
        may_change: names of settings that are free when it goes on.
    """

    def __init__(
        self, target: Path, what: str, schema: str, settings: Mapping[str, Any], may_change: Container[str]
    ) -> None:
        self.target, self.folder = target, beside(target)
        self.store = RunStore(
            self.folder, what, schema, settings, owns=("[!_.]*",), may_change=lambda *change: self._may_change(*change)
        )
        self.snapshot: Snapshot | None = None
        self.replaces = False
        self._free = may_change
        self._lowered: dict[str, dict[str, Any]] = {}

    @property
    def changes(self) -> list[dict[str, Any]]:
        """Settings lowered where the run had diverged, in order: step, field, before, after."""
        return list(self.store.facts.get("changes") or ())

    def check(self, resume: bool, force: bool) -> Snapshot | None:
        """Check that the run can be started or resumed; return the snapshot to resume from.

        Raises:
            OutputError: the target or an unfinished run into it exists, or what is to be resumed is another run.
            OptionError: both are given.
        """
        refuse_both(resume, force)
        found = self.store.manifest() if resume else None
        self.replaces = force or bool((found or {}).get("replaces"))
        refuse_existing(self.target, self.replaces)
        self.snapshot = newest(self.folder) if resume else None
        step = self.snapshot.step if self.snapshot else 0
        self.store.check(resume, force)
        settings = self.store.settings or {}
        if settings.get("max_steps", step) < step:
            raise OutputError(
                f"the run in {self.folder} is at step {step} already: max_steps {settings['max_steps']} is below it."
            )
        # a snapshot from before a change may be the newest whole one: the change then happens there
        try:
            earlier = [{**change, "step": min(step, change["step"])} for change in (found or {}).get("changes", ())]
        except (TypeError, KeyError) as error:
            raise OutputError(
                f"{self.folder / MANIFEST} is damaged: start anew with --force, or choose another --out."
            ) from error
        self.store.facts = {
            "changes": [*earlier, *self._lowered.values()] or None,
            "diverged": None,
            "replaces": self.replaces or None,
        }
        return self.snapshot

    @contextlib.contextmanager
    def open(self, resume: bool, force: bool) -> Iterator[None]:
        """Start or resume the run, holding a lock for the block; removes incomplete snapshots.

        Raises:
            OutputError: see `check`; or another process is at work on the run.
        """
        with self.store.open(resume, force):
            tidy(self.folder)
            try:
                yield
            except Exception as error:  # before the first log line or snapshot there is nothing to go on from
                if not any(self.folder.glob("checkpoint-*")) and not any(self.folder.glob("*.csv")):
                    self.store.discard()
                if (reason := disk_error(error)) is not None:
                    text = f"cannot write {self.folder}: {reason}. Make room, and go on with --resume."
                    raise OutputError(text) from error
                raise

    def clean(self) -> None:
        """Remove the run, whose result is in place, and what a kill left beside that."""
        sweep(self.target.parent, self.target.name)
        self.store.discard()

    def _may_change(self, name: str, was: Any, now: Any) -> bool:
        found, step = self.store.manifest() or {}, self.snapshot.step if self.snapshot else 0
        if name.partition(".")[0] in self._free:
            return True
        if name.startswith(f"{CHECKSUMS}.") and was is None:  # begun before there were any
            return True
        if name in END:
            return _still_open(found["settings"], self.store.settings or {}, step)
        if name in REMEDIES and found.get("diverged") and step and 0 < now < was:
            self._lowered[name] = {"step": step, "field": name, "before": was, "after": now}
            return True
        return False


def _still_open(was: Mapping[str, Any], now: Mapping[str, Any], step: int) -> bool:
    """Return whether the learning rates of the first ``step`` steps are equal for both schedule lengths."""
    begins = min(settings["max_steps"] - settings["decay_steps"] for settings in (was, now))
    schedule = now["schedule"]
    return schedule == "constant" or (schedule == "warmup_stable_decay" and step <= begins)


def _read(folder: Path) -> Snapshot | None:
    try:
        record = codec.loads((folder / SEAL).read_text(encoding="utf-8"))
        whole = all((folder / name).stat().st_size == size for name, size in record["files"].items())
        step = int(folder.name.rpartition("-")[2])
        return Snapshot(folder, step, float(record["loss_total"]), int(record["loss_steps"])) if whole else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
