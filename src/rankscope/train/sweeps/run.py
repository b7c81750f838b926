"""Run a sweep: points in order of their needs, spread over a pool, the table written after each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from rankscope.choices import ENGINES
from rankscope.engine.progress import Progress, silent
from rankscope.errors import OptionError, unknown_choice
from rankscope.io.run_store import locked
from rankscope.measure.sweep import SweepReport, SweepRow
from rankscope.train.config import EmbeddingStart, PretrainConfig
from rankscope.train.sweeps.folder import LOCK, SweepFolder
from rankscope.train.sweeps.meter import Meter, Work, duration, step_cost
from rankscope.train.sweeps.pools import InlinePool, Pool, ProcessPool, lost, visible_gpus
from rankscope.train.sweeps.spec import Point, SweepSpec, with_steps
from rankscope.train.sweeps.worker import BEAT, PointTask, Scoring, read_beat

Note = Callable[[str], None]
"""Told one line when a point is over."""


@dataclass(frozen=True)
class Engine:
    """Where points run.

    Attributes:
        name: ``local`` (this machine) or ``ray`` (a cluster).
        jobs: points at a time; 0 is one per GPU, or one, on this machine, and as many as fit on a cluster.
        address: of the Ray cluster; empty starts Ray on this machine.
        device: ``auto``, ``cpu`` or ``cuda``.
    """

    name: str = "local"
    jobs: int = 0
    address: str = ""
    device: str = "auto"

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            raise OptionError(unknown_choice("engine", self.name, ENGINES))
        if self.jobs < 0:
            raise OptionError(f"jobs is {self.jobs}: it must be at least 1, or 0 for as many as there is room for.")
        if self.address and self.name != "ray":
            raise OptionError(f"address {self.address!r} is of a Ray cluster: it needs engine ray.")


@dataclass(frozen=True)
class PlannedPoint:
    """What ``--dry-run`` says of a point.

    Attributes:
        point: its name.
        fields: what it changes in the base.
        parameters: numbers in its model.
        steps: optimiser steps in all.
        steps_left: steps not yet taken, by its last sign of life; a stopped run goes back to its newest snapshot.
        state: ``waiting``, ``begun``, ``done`` or ``failed``.
    """

    point: str
    fields: dict[str, Any]
    parameters: int
    steps: int
    steps_left: int
    state: str


@dataclass(frozen=True)
class SweepPlan:
    """The points of a sweep before they run."""

    name: str
    about: str
    points: tuple[PlannedPoint, ...]

    SCHEMA: ClassVar = "rankscope/sweep-plan@1"


def choose_points(
    spec: SweepSpec, *, steps: int | None = None, seed: int | None = None, only: Sequence[str] | None = None
) -> tuple[tuple[Point, ...], frozenset[str]]:
    """Expand a sweep and pick points.

    Args:
        spec: the sweep.
        steps: optimiser steps of every point in place of the sweep's own.
        seed: one seed in place of the sweep's own.
        only: names of the points to run; those that they inherit from run with them.

    Returns:
        All points, and the names of those to run.

    Raises:
        OptionError: a name is unknown.
    """
    points = (spec if seed is None else replace(spec, seeds=(seed,))).expand()
    if steps is not None:
        points = tuple(replace(point, config=with_steps(point.config, steps)) for point in points)
    names = {point.name: point for point in points}
    chosen = set(names if only is None else only)
    for name in chosen:
        if name not in names:
            raise OptionError(unknown_choice("point", name, names))
    chosen |= {names[name].needs for name in chosen if names[name].needs}
    return points, frozenset(chosen)


def plan_sweep(spec: SweepSpec, points: Sequence[Point], chosen: frozenset[str], out: Path | str) -> SweepPlan:
    """What a sweep would do, without doing it."""
    folder = SweepFolder(Path(out))
    planned = []
    for point in points:
        if point.name not in chosen:
            continue
        row = folder.row(point.name)
        state = row.state if row is not None else "waiting"
        taken = point.config.max_steps if state == "done" else int(read_beat(folder, point.name).get("step", 0))
        left = max(0, point.config.max_steps - taken)
        count = count_parameters(point.config)
        planned.append(PlannedPoint(point.name, dict(point.fields), count, point.config.max_steps, left, state))
    return SweepPlan(spec.name, spec.about, tuple(planned))


def count_parameters(config: PretrainConfig) -> int:
    """Numbers in the model of a run; nothing is drawn and no memory is taken."""
    import torch

    from rankscope.train.models import new_model

    if config.embedding.source == "inherit":  # it changes values, not shapes
        config = replace(config, embedding=EmbeddingStart())
    with torch.device("meta"):
        return sum(weight.numel() for weight in new_model(config).parameters())


def run_sweep(
    spec: SweepSpec,
    out: Path | str,
    *,
    steps: int | None = None,
    seed: int | None = None,
    only: Sequence[str] | None = None,
    engine: Engine | None = None,
    scoring: Scoring | None = None,
    force: bool = False,
    progress: Progress = silent,
    note: Note | None = None,
) -> SweepReport:
    """Train, measure and score the points of a sweep; finished ones are skipped, half-done ones go on.

    Args:
        spec: the sweep.
        out: its folder, new or of an earlier run of the same sweep.
        steps: optimiser steps of every point in place of the sweep's own.
        seed: one seed in place of the sweep's own.
        only: names of the points to run.
        engine: where they run; one after the other in this process, or one per GPU, by default.
        scoring: how checkpoints are scored; None for no scores.
        force: train the chosen points anew.
        progress: told ``(done, total, what)`` in steps over the whole sweep.
        note: told one line when a point is over.

    Returns:
        All points; the folder holds the same as ``sweep.json``, ``sweep.csv`` and ``sweep.parquet``. A point that
        failed says why; the others were trained nevertheless.

    Raises:
        OptionError: a point or an option is unknown, or Ray is not there.
        OutputError: the folder holds something else, or a point of it was begun with another config.
        RankscopeError: another process runs this sweep.
    """
    root = Path(out).resolve()
    folder = SweepFolder(root)
    points, chosen = choose_points(spec, steps=steps, seed=seed, only=only)
    folder.check(spec, tuple(point for point in points if not force or point.name not in chosen))
    root.mkdir(parents=True, exist_ok=True)
    with locked(root / LOCK, f"the sweep in {root} is being run"):
        if force:
            for name in chosen:
                folder.forget(name)
        folder.write_report(folder.report(spec, points))
        how = engine or Engine()
        tasks = [PointTask(p, str(root), spec.eps, how.device, scoring) for p in points if p.name in chosen]
        tasks = [task for task in tasks if not task.is_done(folder.row(task.point.name))]
        if tasks:
            _Run(spec, points, folder, tasks, progress, note).go(how)
        report = folder.report(spec, points)
        folder.write_report(report)
        return report


class _Run:
    """The loop: start what is ready while there is room, look at the beats, take in what ended."""

    def __init__(
        self,
        spec: SweepSpec,
        points: tuple[Point, ...],
        folder: SweepFolder,
        tasks: list[PointTask],
        progress: Progress,
        note: Note | None,
    ) -> None:
        self.spec, self.points, self.folder = spec, points, folder
        self.waiting = list(tasks)
        self.running: set[str] = set()
        self.over: dict[str, SweepRow] = {}
        self.count = len(tasks)
        self.note = note
        self.meter = Meter({task.point.name: _work(task.point.config) for task in tasks}, progress)
        self.progress = progress
        self.now: Point | None = None

    def go(self, engine: Engine) -> None:
        """Run every task to its end."""
        pool = _pool(engine, self._inline_progress)
        try:
            while self.waiting or self.running:
                self._start(pool)
                for row in pool.finished(BEAT):
                    self._take(row)
                for name in self.running:
                    if beat := read_beat(self.folder, name):
                        self.meter.step(name, int(beat["step"]))
        finally:
            pool.close()

    def _start(self, pool: Pool) -> None:
        for task in list(self.waiting):
            needs = task.point.needs
            unmet = needs and (needs in self.running or any(other.point.name == needs for other in self.waiting))
            if unmet:
                continue
            if needs in self.over and self.over[needs].state == "failed":
                self.waiting.remove(task)
                self.running.add(task.point.name)
                self._take(lost(task, f"point {needs!r}, whose embedding it inherits, failed"))
                continue
            if not pool.room:
                return
            self.waiting.remove(task)
            self.running.add(task.point.name)
            self.now = task.point
            pool.start(task)

    def _take(self, row: SweepRow) -> None:
        self.running.discard(row.point)
        self.over[row.point] = row
        self.meter.finish(row.point)
        self.folder.write_report(self.folder.report(self.spec, self.points))
        if self.note is not None:
            end = f"failed: {row.error}" if row.state == "failed" else f"loss {row.loss:.3f}, {duration(row.seconds)}"
            left = f"about {duration(self.meter.seconds_left)} left" if self.waiting or self.running else "all over"
            self.note(f"{row.point}: {end} ({len(self.over)} of {self.count}, {left})")

    def _inline_progress(self, done: int, total: int, what: str) -> None:
        point = self.now
        if point is None:
            return
        if total == point.config.max_steps and done > 0:
            self.meter.step(point.name, done)
        else:
            self.progress(done, total, f"{point.name}: {what}")


def _work(config: PretrainConfig) -> Work:
    return Work(config.max_steps, step_cost(config, count_parameters(config)), config.log_steps)


def _pool(engine: Engine, progress: Progress) -> Pool:
    if engine.name == "ray":
        from rankscope.train.sweeps.ray_pool import RayPool

        return RayPool(engine.address, engine.jobs)
    gpus = () if engine.device == "cpu" else visible_gpus()
    jobs = engine.jobs or max(1, len(gpus))
    # one process and several GPUs would have transformers split every batch over all of them
    return InlinePool(progress) if jobs == 1 and len(gpus) <= 1 else ProcessPool(jobs, gpus)
