"""Points of a sweep: their state on disk, and execution in any process."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.engine import Progress, silent
from rankscope.engine.pool import Tick
from rankscope.errors import DataError, OutputError, one_line
from rankscope.io import codec
from rankscope.io.atomic import atomic_file
from rankscope.io.run_store import RunStore, differences
from rankscope.measure.spectrum import eps_key
from rankscope.measure.sweep import ALL, SweepReport, SweepRow, measure_point
from rankscope.train.config import PretrainConfig, config_from_dict
from rankscope.train.run_folder import beside
from rankscope.train.sweeps.spec import Point, SweepSpec, inherited, with_fields

REPORT = "sweep"
"""Stem of the files that hold the whole sweep: .json, .csv and .parquet."""
BEAT = 0.5
"""Heartbeat interval in seconds."""
PATIENCE = 120.0
"""Seconds to wait for the process of an earlier attempt to exit."""


class SweepFolder:
    """Folder of a sweep.

    ``points/<name>`` is a checkpoint (while it trains, its snapshots lie beside it), ``rows/<name>.json`` what is
    known of it, ``logs/<name>.log`` what its process printed, ``beats/<name>.json`` how far it is.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = RunStore(root, "the sweep", items="rows")

    def checkpoint(self, point: str) -> Path:
        """Folder of a point's checkpoint."""
        return self.root / "points" / point

    def log(self, point: str) -> Path:
        """File of what a point's process printed."""
        return self.root / "logs" / f"{point}.log"

    def beat(self, point: str) -> Path:
        """File that says how far a point is."""
        return self.root / "beats" / f"{point}.json"

    def row(self, point: str) -> SweepRow | None:
        """Return the row of a point, or None.

        Raises:
            OutputError: its file is damaged.
        """
        return self.store.get(point, SweepRow)

    def forget(self, point: str) -> None:
        """Delete a point's checkpoint, snapshots and row."""
        for path in [self.checkpoint(point), *self.checkpoint(point).parent.glob(f"{point}.*")]:
            shutil.rmtree(path, ignore_errors=True)
        for file in (self.store.path(point), self.beat(point), self.log(point)):
            file.unlink(missing_ok=True)

    def report(self, spec: SweepSpec, points: tuple[Point, ...]) -> SweepReport:
        """Return all points with their rows."""
        rows = (self.row(p.name) or SweepRow(p.name, dict(p.fields), codec.plain(p.config)) for p in points)
        return SweepReport(spec.name, spec.about, str(self.root), spec.eps, tuple(rows))

    def write_report(self, report: SweepReport) -> None:
        """Write sweep.json, sweep.csv and sweep.parquet."""
        frame = report.to_frame()
        for suffix in (".json", ".csv", ".parquet"):
            with atomic_file(self.root / f"{REPORT}{suffix}") as path:
                if suffix == ".json":
                    path.write_text(codec.text(report, indent=1) + "\n", encoding="utf-8")
                elif suffix == ".csv":
                    frame.to_csv(path, index=False)
                else:
                    frame.to_parquet(path, index=False)

    def check(self, spec: SweepSpec, points: tuple[Point, ...]) -> None:
        """Check that the folder is empty or holds this sweep, before anything is written.

        Raises:
            OutputError: it is a file, has other content, holds another sweep, or a point of it was begun with another
                config or trained on other data.
        """
        self.store.check()
        earlier = self._earlier_name()
        if earlier is None and not self.store.empty:
            raise OutputError(f"--out {self.root} exists and holds no sweep: choose another place.")
        if earlier not in (None, spec.name):
            raise OutputError(
                f"--out {self.root} holds the sweep {earlier!r}, not {spec.name!r}: choose another place."
            )
        from rankscope.train.trainer import data_checksums

        read = cache(data_checksums)  # points share their files
        for point in points:
            row = self.row(point.name)
            if row is None and self.checkpoint(point.name).exists():
                raise OutputError(
                    f"{self.checkpoint(point.name)} was not trained by this sweep: move it away, or train the point "
                    "anew with --force."
                )
            for name, was, now in () if row is None else differences(config_from_dict(row.config), point.config):
                raise OutputError(
                    f"point {point.name!r} in {self.root} was begun with {name} {was!r}, not {now!r}: choose another "
                    "--out, or train it anew with --force."
                )
            if row is not None and (changed := self._changed_data(point, read)):
                raise OutputError(
                    f"point {point.name!r} in {self.root} was trained when {changed} held other data: choose another "
                    "--out, or train it anew with --force."
                )

    def _changed_data(self, point: Point, read: Callable[[tuple[str, ...], str], dict[str, str]]) -> str | None:
        """Name of a file or folder of shards that a trained point has read, and that holds something else by now."""
        from rankscope.train.trainer import CHECKSUMS, RECORD

        record = self.checkpoint(point.name) / RECORD
        try:
            was = codec.part(record, "conditions").get(CHECKSUMS, {}) if record.is_file() else {}
            now = read(point.config.mixture.files, point.config.shards) if was else {}
        except DataError:  # a damaged record is named where its point is read; data that are gone contradict nothing
            return None
        return next((name for name, found in now.items() if was.get(name, found) != found), None)

    def _earlier_name(self) -> str | None:
        file = self.root / f"{REPORT}.json"
        if not file.exists():
            return None
        try:
            data = codec.load(file)
        except DataError as error:
            raise OutputError(f"{file} is damaged: delete it; the points are kept in rows/.") from error
        if not isinstance(data, dict) or data.get("schema") != SweepReport.SCHEMA:
            raise OutputError(f"--out {self.root} exists and holds no sweep: choose another place.")
        if not isinstance(data.get("name"), str):
            raise OutputError(f"{file} is damaged: delete it; the points are kept in rows/.")
        return str(data["name"])


Score = Callable[[Checkpoint], Mapping[str, float]]
"""Scores of an open checkpoint; it must survive pickling to run in other processes."""


@dataclass(frozen=True)
class Scoring:
    """Scoring of points.

    Attributes:
        score: called with the checkpoint; a module-level function, a partial of one, or an object.
        name: says how, e.g. the suite; a point scored under another name is scored again.
    """

    score: Score
    name: str


@dataclass(frozen=True)
class PointTask:
    """Task of running a point, self-contained for other processes.

    Attributes:
        point: which.
        root: folder of the sweep, absolute; every process must see the same files there.
        eps: tolerances of the ε-ranks.
        device: ``auto``, ``cpu`` or ``cuda``.
        scoring: None for no scores.
    """

    point: Point
    root: str
    eps: tuple[float, ...]
    device: str = "auto"
    scoring: Scoring | None = None

    def is_done(self, row: SweepRow | None) -> bool:
        """Return True if the point is trained, measured at these ε, and scored this way."""
        scored = self.scoring is None or (row is not None and row.scored_with == self.scoring.name)
        return row is not None and row.state == "done" and self.is_measured(row) and scored

    def is_measured(self, row: SweepRow) -> bool:
        """Return True if the ranks at these ε are known."""
        return row.ranks is not None and all(eps_key(level) in row.ranks.mean_ranks[ALL] for level in self.eps)


def run_point(task: PointTask, progress: Progress = silent) -> SweepRow:
    """Run a point to completion, resuming earlier attempts; failures are recorded in the row.

    Args:
        task: the point.
        progress: called with the step, the total and what ``pretrain`` says.

    Returns:
        The row, which is also kept in the sweep's folder: state ``done`` or ``failed``.

    Raises:
        RankscopeError: another process is at work on the point.
    """
    folder = SweepFolder(Path(task.root))
    with folder.store.claim(task.point.name, wait=PATIENCE):
        row = folder.row(task.point.name) or _first_row(task)
        try:
            row = _trained(task, folder, row, progress)
            row = _measured(task, folder, row)
            row = replace(row, state="done", error="")
        except Exception as error:  # whatever it is, the other points go on
            row = replace(folder.row(task.point.name) or row, state="failed", error=one_line(error))
        folder.store.put(task.point.name, row)
        return row


def run_logged(task: PointTask, tick: Tick) -> SweepRow:
    """Run a point in a process of its own; what it prints goes to the point's log."""
    log = SweepFolder(Path(task.root)).log(task.point.name)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    return run_point(task)


def lost(task: PointTask, why: str) -> SweepRow:
    """Keep and return the row of a point whose process could not say itself what went wrong."""
    folder = SweepFolder(Path(task.root))
    log = folder.log(task.point.name)
    hint = f"; see {log}" if log.exists() else ""
    row = folder.row(task.point.name) or _first_row(task)
    row = replace(row, state="failed", error=f"{why}{hint}")
    folder.store.put(task.point.name, row)
    return row


def inheriting(config: PretrainConfig, root: Path) -> PretrainConfig:
    """Config of a point with ``@name`` replaced by the checkpoint of that point in the sweep's folder.

    Raises:
        OutputError: that point has no checkpoint.
    """
    needed = inherited(config)
    if not needed:
        return config
    source = SweepFolder(root).checkpoint(needed)
    if not source.is_dir():
        raise OutputError(f"point {needed!r}, whose embedding it inherits, has no checkpoint yet: train that first.")
    return with_fields(config, {"embedding.model": str(source)})


def _first_row(task: PointTask) -> SweepRow:
    point = task.point
    return SweepRow(point.name, dict(point.fields), codec.plain(point.config), folder=f"points/{point.name}")


def _trained(task: PointTask, folder: SweepFolder, row: SweepRow, progress: Progress) -> SweepRow:
    from rankscope.train.trainer import PretrainReport, pretrain

    target = folder.checkpoint(task.point.name)
    if not target.exists():
        config = inheriting(task.point.config, Path(task.root))
        heart = Heart(task, folder, row, progress, again=row.state != "waiting")
        folder.store.put(task.point.name, replace(row, state="begun", error=""))
        folder.beat(task.point.name).unlink(missing_ok=True)
        options: dict[str, Any] = {"device": task.device, "progress": heart.beat}
        pretrain(config, target, resume=True, **options)
        row = heart.row
    else:  # a kill may have come between the checkpoint's place and the end of its snapshots
        shutil.rmtree(beside(target), ignore_errors=True)
    record = target / "pretrain.json"
    fix = f"Delete {target}, and the point is trained anew."
    try:
        report = codec.parse(PretrainReport, codec.part(record, "report"), str(record))
    except DataError as error:
        raise DataError(f"{error} {fix}") from error
    names = ("parameters", "steps", "loss", "seconds")
    return replace(row, state="begun", error="", **{name: getattr(report, name) for name in names})


def _measured(task: PointTask, folder: SweepFolder, row: SweepRow) -> SweepRow:
    checkpoint = open_checkpoint(folder.checkpoint(task.point.name))
    if not task.is_measured(row):
        row = replace(row, ranks=measure_point(checkpoint, task.eps))
        folder.store.put(task.point.name, row)
    if task.scoring is not None and row.scored_with != task.scoring.name:
        found = task.scoring.score(checkpoint)
        scores = {name: float(value) if math.isfinite(value) else None for name, value in found.items()}
        row = replace(row, scores=scores, scored_with=task.scoring.name)
    return row


class Heart:
    """Progress reporter of a run: to the caller, and to a heartbeat file for other processes."""

    def __init__(self, task: PointTask, folder: SweepFolder, row: SweepRow, progress: Progress, *, again: bool) -> None:
        self.row = row
        self._steps = task.point.config.max_steps
        self._folder = folder
        self._progress = progress
        self._again = again
        self._last = -BEAT

    def beat(self, done: int, total: int, what: str) -> None:
        """Take a report from ``pretrain``."""
        self._progress(done, total, what)
        if total != self._steps or done < 1:  # generating series, not training
            return
        if self._again:
            self._again = False
            self.row = replace(self.row, resumed_at=(*self.row.resumed_at, done))
            self._folder.store.put(self.row.point, replace(self.row, state="begun", error=""))
        if time.monotonic() - self._last >= BEAT or done == total:
            self._last = time.monotonic()
            beat = {"step": done, "steps": total, "what": what, "pid": os.getpid(), "time": time.time()}
            codec.write(self._folder.beat(self.row.point), beat)


def read_beat(folder: SweepFolder, point: str) -> dict[str, Any]:
    """Return the last heartbeat of a point, or an empty one."""
    try:
        found = codec.load(folder.beat(point))
    except DataError:
        return {}
    return found if isinstance(found, dict) else {}
