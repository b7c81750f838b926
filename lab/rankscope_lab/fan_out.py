"""The same function over many tasks: here, in processes of one thread each, or on a Ray cluster."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, TypeVar

from rankscope.choices import ENGINES
from rankscope.engine.cluster import connect, import_ray
from rankscope.engine.cores import available_cores
from rankscope.errors import OptionError, RankscopeError, one_line, unknown_choice

LOOK = 0.5
"""Seconds between two looks at how far the processes are."""
RETRIES = 2
"""How often Ray starts a task again whose machine was lost."""

Task = TypeVar("Task")
Result = TypeVar("Result")
Ticks = Callable[[int], None]
"""Called with how many units of work were done since the last call."""

_ticks: Any = None
"""The shared counter of this process, where it is one of many."""


@dataclass(frozen=True)
class Engine:
    """Where tasks run.

    Attributes:
        name: ``local`` or ``ray``.
        jobs: processes (local) or CPUs of a Ray that is started here; 1 is this process itself, 0 one per core.
        address: of the Ray cluster; empty starts Ray on this machine.
    """

    name: str = "local"
    jobs: int = 1
    address: str = ""

    def __post_init__(self) -> None:
        """Refuse what is not there.

        Raises:
            OptionError: unknown engine, or fewer than no jobs.
        """
        if self.name not in ENGINES:
            raise OptionError(unknown_choice("engine", self.name, ENGINES))
        if self.jobs < 0:
            raise OptionError(f"jobs must be at least 0 (one per core), got {self.jobs}.")

    @property
    def processes(self) -> int:
        """Processes that a local engine starts."""
        return self.jobs or available_cores()


def fan_out(
    function: Callable[[Task, Ticks], Result],
    tasks: Sequence[Task],
    engine: Engine,
    ticks: Ticks,
    *,
    device: str = "cpu",
) -> Iterator[Result]:
    """Results in the order in which they are finished.

    An error of a task, or of what reads the results, ends the tasks that run and those that wait.

    Args:
        function: of a module, called with a task and something to report its progress to.
        tasks: records that can be pickled between processes.
        engine: where.
        ticks: is told the units of work of all tasks; on a cluster it is told nothing.
        device: ``cpu`` or ``cuda``: on a cluster each task then has a GPU to itself.

    Raises:
        RankscopeError: the cluster does not answer, or has no GPU for tasks that need one.
    """
    if engine.name == "ray":
        yield from _on_ray(function, tasks, engine, device)
    elif min(engine.processes, len(tasks)) <= 1:
        for task in tasks:
            yield function(task, ticks)
    else:
        yield from _in_processes(function, tasks, engine, ticks)


def _in_processes(
    function: Callable[[Task, Ticks], Result], tasks: Sequence[Task], engine: Engine, ticks: Ticks
) -> Iterator[Result]:
    context = multiprocessing.get_context("spawn")
    counter = context.Value("q", 0)
    seen = 0
    pool = ProcessPoolExecutor(min(engine.processes, len(tasks)), context, _settle, (counter,))
    try:
        waiting: set[Future[Result]] = {pool.submit(_counted, function, task) for task in tasks}
        while waiting:
            done, waiting = wait(waiting, LOOK, FIRST_COMPLETED)
            now = counter.value
            if now > seen:
                ticks(now - seen)
                seen = now
            for future in done:
                yield future.result()
    finally:
        processes = list((getattr(pool, "_processes", None) or {}).values())  # the pool forgets them when it shuts down
        for process in processes:
            process.terminate()  # tasks keep their state in files
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.join()


def _settle(counter: Any) -> None:
    """One thread, and memory that is kept instead of given back after every operation (each new page costs a fault).

    An interrupt from the terminal reaches every process: the one that the user began ends the others.
    """
    global _ticks
    _ticks = counter
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch

    torch.set_num_threads(1)
    keep_memory()


def keep_memory() -> None:
    """Let the allocator of this process keep large blocks for reuse (glibc; elsewhere nothing happens)."""
    if not sys.platform.startswith("linux"):
        return
    trim, mapped = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(mapped, 1 << 30)
        libc.mallopt(trim, (1 << 31) - 1)


def _counted(function: Callable[[Task, Ticks], Result], task: Task) -> Result:
    def tick(units: int) -> None:
        with _ticks.get_lock():
            _ticks.value += units

    return function(task, tick)


def _on_ray(
    function: Callable[[Task, Ticks], Result], tasks: Sequence[Task], engine: Engine, device: str
) -> Iterator[Result]:
    ray = import_ray()
    begun = not ray.is_initialized()
    if begun:
        connect(ray, engine.address, engine.jobs)
    running: list[Any] = []
    try:
        gpus = 1 if device.startswith("cuda") else 0
        if gpus and not ray.cluster_resources().get("GPU", 0):
            raise RankscopeError("the Ray cluster has no GPU: choose --device cpu, or add a machine that has one.")
        remote = ray.remote(_alone).options(max_retries=RETRIES, num_cpus=1, num_gpus=gpus)
        running = [remote.remote(function, task) for task in tasks]
        while running:
            (ready,), running = ray.wait(running, num_returns=1)
            yield _fetched(ray, ready)
    finally:
        for reference in running:
            ray.cancel(reference, force=True)
        if begun:
            ray.shutdown()


def _alone(function: Callable[[Task, Ticks], Result], task: Task) -> Result:
    import torch

    torch.set_num_threads(1)
    keep_memory()
    return function(task, lambda units: None)


def _fetched(ray: Any, reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause if isinstance(error.cause, RankscopeError) else error from None
    except ray.exceptions.RayError as error:
        raise RankscopeError(f"the Ray cluster lost a task: {one_line(error)}") from error
