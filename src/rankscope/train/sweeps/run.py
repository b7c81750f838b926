"""Run a sweep: schedule points over a pool in dependency order, writing the table after each."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from rankscope.engine import Progress, silent
from rankscope.engine.device import visible_gpus
from rankscope.engine.fan_out import open_pool
from rankscope.engine.pool import Engine, Pool, available_cores
from rankscope.errors import OptionError, unknown_choice
from rankscope.measure.sweep import SweepReport, SweepRow
from rankscope.train.config import EmbeddingStart, PretrainConfig
from rankscope.train.logs import tokens_per_series
from rankscope.train.sweeps.points import BEAT, PointTask, Scoring, SweepFolder, lost, read_beat, run_logged, run_point
from rankscope.train.sweeps.spec import Point, SweepSpec, with_steps

OVERHEAD = 1e8
"""Multiplications that a step costs besides the matrix products: they decide where models are tiny."""
RETRIES = 2
"""Retries of a point whose process died."""


def step_cost(config: PretrainConfig, parameters: int) -> float:
    """Guess what one optimiser step costs, in multiplications: tokens × parameters, and an overhead.

    Only the ratio between points matters: it turns the time that one point took into that of the others.
    """
    return OVERHEAD + config.batch_size * config.accumulation * tokens_per_series(config) * parameters


class Work(NamedTuple):
    """Work of a point: optimiser steps, the cost of one, and how many it takes between two reports."""

    steps: int
    cost: float
    log_steps: int = 1


class Meter:
    """Aggregate progress over all points, weighted by cost.

    Args:
        work: what each point has to do.
        report: called with ``(done, total, what)`` in steps of average cost; ``what`` names point and step.
        clock: seconds.
    """

    def __init__(
        self, work: Mapping[str, Work], report: Progress = silent, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._work = dict(work)
        self._report = report
        self._clock = clock
        self._begun = clock()
        self.total = sum(one.steps for one in work.values())
        self._whole = sum(one.steps * one.cost for one in work.values())
        self._at: dict[str, int] = {}
        self._skipped: dict[str, int] = {}

    def step(self, point: str, done: int) -> None:
        """A point has taken ``done`` steps; those of an earlier attempt are not counted as work done now."""
        work = self._work[point]
        if point not in self._at:
            self._skipped[point] = max(0, done - work.log_steps)
        if done != self._at.get(point):
            self._at[point] = done
            self._tell(f"{point} step {done}/{work.steps}")

    def finish(self, point: str) -> None:
        """A point is over, done or failed: nothing of it is left, and steps that were not seen are no work done."""
        steps = self._work[point].steps
        self._skipped[point] = self._skipped.get(point, 0) + steps - self._at.get(point, 0)
        self._at[point] = steps
        self._tell(f"{point} is over")

    @property
    def seconds_left(self) -> float | None:
        """Seconds that the rest will take at the pace so far; None while there is no pace."""
        passed = self._clock() - self._begun
        made = self._sum(self._at) - self._sum(self._skipped)
        left = self._whole - self._sum(self._at)
        return passed * left / made if made > 0 else None

    def _sum(self, at: Mapping[str, int]) -> float:
        return sum((done * self._work[point].cost for point, done in at.items()), 0.0)

    def _tell(self, what: str) -> None:
        self._report(round(self.total * self._sum(self._at) / self._whole), self.total, what)


def duration(seconds: float | None) -> str:
    """A duration in words.

    >>> duration(None), duration(42.0), duration(900.0), duration(9000.0)
    ('unknown', '42 s', '15 min', '2.5 h')
    """
    if seconds is None:
        return "unknown"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


Note = Callable[[str], None]
"""Callback with one line per finished point."""


@dataclass(frozen=True)
class PlannedPoint:
    """Planned point.

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
    chosen: set[str] = set()
    for name in names if only is None else only:
        if name not in names:
            raise OptionError(unknown_choice("point", name, names))
        while name and name not in chosen:
            chosen.add(name)
            name = names[name].needs
    return points, frozenset(chosen)


def plan_sweep(spec: SweepSpec, points: Sequence[Point], chosen: frozenset[str], out: Path | str) -> SweepPlan:
    """Return the points of a sweep with their sizes and states; nothing is run."""
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
    """Train, measure and score the points of a sweep; finished points are skipped, unfinished ones resumed.

    Args:
        spec: the sweep.
        out: its folder, new or of an earlier run of the same sweep.
        steps: optimiser steps of every point in place of the sweep's own.
        seed: one seed in place of the sweep's own.
        only: names of the points to run.
        engine: where they run; one after the other in this process, or one per GPU, by default. On a cluster the
            folder has to lie on storage that all machines see under one path.
        scoring: how checkpoints are scored; None for no scores.
        force: train anew the points of ``only``, or all; what they inherit from is kept where it is trained.
        progress: called with ``(done, total, what)`` in steps over the whole sweep.
        note: called with one line when a point is over.

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
    asked = chosen if only is None else frozenset(only)
    anew = asked if force else frozenset()
    folder.check(spec, tuple(point for point in points if point.name not in anew))
    with folder.store.open():
        for name in anew:
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
        with self._pool(engine) as pool:
            while self.waiting or self.running:
                self._start(pool)
                for ended in pool.finished(BEAT):
                    self._take(lost(ended.task, str(ended.error)) if ended.error else ended.result)
                for name in self.running:
                    if beat := read_beat(self.folder, name):
                        self.meter.step(name, int(beat["step"]))

    def _pool(self, engine: Engine) -> Pool:
        """Processes where points run side by side, or are kept to one of several GPUs."""
        gpus = () if engine.device == "cpu" or engine.name == "ray" else visible_gpus()
        jobs = engine.jobs or max(1, len(gpus))
        if engine.name == "local" and jobs == 1 and len(gpus) <= 1:
            return open_pool(lambda task, tick: run_point(task, self._inline_progress), engine, 1)
        threads = 0 if "OMP_NUM_THREADS" in os.environ or engine.name == "ray" else max(1, available_cores() // jobs)
        return open_pool(run_logged, engine, jobs, threads=threads, gpus=gpus, retries=RETRIES)

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
