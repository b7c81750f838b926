"""Where points run: in this process, or in processes of this machine; Ray is in ``ray_pool``."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import multiprocessing.process
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from rankscope.engine.progress import Progress, silent
from rankscope.io import codec
from rankscope.measure.sweep import SweepRow
from rankscope.train.sweeps.folder import SweepFolder
from rankscope.train.sweeps.worker import PointTask, run_point

RETRIES = 2
"""How often a point whose process died is taken up again."""


@runtime_checkable
class Pool(Protocol):
    """Runs points; the sweep asks it for room, starts points, and collects those that ended."""

    @property
    def room(self) -> bool:
        """Whether another point can start now."""
        ...

    def start(self, task: PointTask) -> None:
        """Begin a point."""
        ...

    def finished(self, timeout: float) -> list[SweepRow]:
        """Points that ended since the last call; waits at most ``timeout`` seconds for one."""
        ...

    def close(self) -> None:
        """Stop whatever still runs."""
        ...


class InlinePool:
    """One point at a time in this process: no start-up cost, but a crash takes the sweep with it."""

    def __init__(self, progress: Progress = silent) -> None:
        self._progress = progress
        self._ended: list[SweepRow] = []

    @property
    def room(self) -> bool:
        """True between points."""
        return not self._ended

    def start(self, task: PointTask) -> None:
        """Run the point to its end."""
        self._ended.append(run_point(task, self._progress))

    def finished(self, timeout: float) -> list[SweepRow]:
        """Return the point that ran."""
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        """Nothing runs between calls."""


class ProcessPool:
    """Processes of this machine, one per point, each on a GPU of its own where there are any.

    A process that dies without a word (killed, out of memory) is started again and goes on from its newest snapshot.

    Args:
        jobs: points at a time.
        gpus: GPUs to hand out in turn; empty for the CPU.
        retries: how often a point whose process died is started again.
    """

    def __init__(self, jobs: int, gpus: tuple[str, ...] = (), retries: int = RETRIES) -> None:
        self._jobs = jobs
        self._gpus = gpus
        self._retries = retries
        self._context = multiprocessing.get_context("spawn")
        self._running: dict[str, tuple[PointTask, multiprocessing.process.BaseProcess, str]] = {}
        self._deaths: dict[str, int] = {}

    @property
    def room(self) -> bool:
        """Whether fewer than ``jobs`` processes run."""
        return len(self._running) < self._jobs

    def start(self, task: PointTask) -> None:
        """Start a process on the GPU that the fewest use."""
        taken = [gpu for _, _, gpu in self._running.values()]
        gpu = min(self._gpus, key=taken.count, default="")
        threads = max(1, (os.cpu_count() or 1) // self._jobs)
        process = self._context.Process(target=_entry, args=(task, gpu, threads), name=task.point.name)
        process.start()
        self._running[task.point.name] = (task, process, gpu)

    def finished(self, timeout: float) -> list[SweepRow]:
        """Collect processes that ended, and start those again that died."""
        multiprocessing.connection.wait([process.sentinel for _, process, _ in self._running.values()], timeout)
        over = [name for name, (_, process, _) in self._running.items() if not process.is_alive()]
        rows = []
        for name in over:
            task, process, _ = self._running.pop(name)
            process.join()
            row = SweepFolder(Path(task.root)).row(name)
            if process.exitcode == 0 and row is not None:
                rows.append(row)
                continue
            self._deaths[name] = self._deaths.get(name, 0) + 1
            if self._deaths[name] <= self._retries:
                self.start(task)
            else:
                rows.append(lost(task, f"its process died {self._deaths[name]} times, last {_cause(process.exitcode)}"))
        return rows

    def close(self) -> None:
        """Terminate what still runs; snapshots stay."""
        for _, process, _ in self._running.values():
            process.terminate()
        for _, process, _ in self._running.values():
            process.join()
        self._running.clear()


def lost(task: PointTask, why: str) -> SweepRow:
    """Keep and return the row of a point whose process could not say itself what went wrong."""
    folder = SweepFolder(Path(task.root))
    known = folder.row(task.point.name)
    log = folder.log(task.point.name)
    hint = f"; see {log}" if log.exists() else ""
    row = known or SweepRow(task.point.name, dict(task.point.fields), codec.plain(task.point.config))
    row = replace(row, state="failed", error=f"{why}{hint}")
    folder.write_row(row)
    return row


def visible_gpus() -> tuple[str, ...]:
    """Names by which CUDA_VISIBLE_DEVICES can ask for the GPUs that this process may use."""
    import torch

    count = torch.cuda.device_count()
    listed = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return tuple(listed[:count]) if listed else tuple(str(index) for index in range(count))


def _cause(code: int | None) -> str:
    return f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"


def _entry(task: PointTask, gpu: str, threads: int) -> None:
    """What a process of the pool does; its GPU is set before CUDA starts, what it prints goes to the point's log."""
    if gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    log = SweepFolder(Path(task.root)).log(task.point.name)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    import torch

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(threads)
    try:
        run_point(task)
    except KeyboardInterrupt:
        sys.exit(130)
