"""Pools of tasks: one after the other in this process, or in processes of this machine."""

from __future__ import annotations

import abc
import contextlib
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from typing import Any, NamedTuple

from rankscope import choices
from rankscope.errors import OptionError, RankscopeError, one_line, unknown_choice

LOOK = 0.5
"""Seconds between two looks at tasks that run elsewhere."""

Tick = Callable[[int], None]
"""Told how many units of work were done since the last time."""
Work = Callable[[Any, Tick], Any]
"""A function of a module, or a partial of one: called with a task that can be pickled, and a `Tick`."""

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class WorkerLost(RankscopeError):
    """The process that a task ran in died again and again.

    Attributes:
        code: its exit code; the negative number of a signal, None if it is not known.
    """

    code: int | None = None


class WorkerTraceback(Exception):
    """Traceback of a worker's error, the cause of that error in this process."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


@dataclass(frozen=True)
class Engine:
    """An engine that runs tasks.

    Attributes:
        name: ``local`` (this machine) or ``ray`` (a cluster).
        jobs: tasks at a time; 0 for as many as there is room for.
        address: of the Ray cluster; empty starts Ray on this machine.
        device: ``auto``, ``cpu`` or ``cuda``: what a task computes on; on a cluster a GPU is reserved for it.
    """

    name: str = "local"
    jobs: int = 0
    address: str = ""
    device: str = "auto"

    def __post_init__(self) -> None:
        if self.name not in choices.ENGINES:
            raise OptionError(unknown_choice("engine", self.name, choices.ENGINES))
        if self.jobs < 0:
            raise OptionError(f"jobs is {self.jobs}: it must be at least 1, or 0 for as many as there is room for.")
        if self.address and self.name != "ray":
            raise OptionError(f"address {self.address!r} is of a Ray cluster: it needs engine ray.")


class Ended(NamedTuple):
    """A task that is over, with its result or what went wrong."""

    task: Any
    result: Any = None
    error: Exception | None = None


class Pool(abc.ABC):
    """Runs one function on tasks; leaving the ``with`` block ends those that still run."""

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    @abc.abstractmethod
    def room(self) -> bool:
        """True if another task can start now."""

    @property
    @abc.abstractmethod
    def busy(self) -> bool:
        """True if a task is not over, or was not yet collected."""

    @abc.abstractmethod
    def start(self, task: Any) -> None:
        """Begin a task."""

    @abc.abstractmethod
    def finished(self, timeout: float = LOOK) -> list[Ended]:
        """Tasks that ended since the last call; waits at most ``timeout`` seconds for one."""

    @abc.abstractmethod
    def close(self) -> None:
        """End what still runs: tasks keep their state in files."""


class InProcess(Pool):
    """One task at a time in this process: no start-up cost, but a crash takes the caller with it."""

    def __init__(self, work: Work, tick: Tick) -> None:
        self._work, self._tick = work, tick
        self._ended: list[Ended] = []

    @property
    def room(self) -> bool:
        """True between tasks."""
        return not self._ended

    @property
    def busy(self) -> bool:
        """True until the result is collected."""
        return bool(self._ended)

    def start(self, task: Any) -> None:
        """Run the task to its end; its errors are raised here."""
        self._ended.append(Ended(task, self._work(task, self._tick)))

    def finished(self, timeout: float = LOOK) -> list[Ended]:
        """Return the task that ran."""
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        """Nothing runs between calls."""


class _Worker(NamedTuple):
    process: Any
    line: connection.Connection
    gpu: str


class Processes(Pool):
    """Processes of this machine that stay from task to task, each on a GPU of its own where there are any.

    `concurrent.futures` fails every task when one process dies, and cannot say which of them it was at: here the others
    go on, and the lost task is begun again.
    """

    def __init__(
        self, work: Work, jobs: int, tick: Tick, threads: int = 0, gpus: tuple[str, ...] = (), retries: int = 0
    ) -> None:
        self._work, self._tick, self._threads = work, tick, threads
        self._jobs, self._gpus, self._retries = jobs, gpus, retries
        self._idle: list[_Worker] = []
        self._running: list[tuple[_Worker, Any, int]] = []

    def close(self) -> None:
        """Terminate every process."""
        workers = [worker for worker, _, _ in self._running] + self._idle
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.process.join()
            worker.line.close()
        self._running.clear()
        self._idle.clear()

    @property
    def room(self) -> bool:
        """True if fewer tasks run than may."""
        return len(self._running) < self._jobs

    @property
    def busy(self) -> bool:
        """True if any task runs."""
        return bool(self._running)

    def start(self, task: Any) -> None:
        """Hand the task to a process that is free, or a new one."""
        self._start(task, 0)

    def finished(self, timeout: float = LOOK) -> list[Ended]:
        """Collect tasks that ended, and begin those again whose process died."""
        ended = []
        ready = connection.wait([worker.line for worker, _, _ in self._running], timeout)
        for entry in [entry for entry in self._running if entry[0].line in ready]:
            worker, task, deaths = entry
            try:
                kind, value = worker.line.recv()
            except (EOFError, OSError):
                self._running.remove(entry)
                worker.process.join()
                worker.line.close()
                if deaths < self._retries:
                    self._start(task, deaths + 1)
                else:
                    ended.append(Ended(task, error=_lost(deaths + 1, worker.process.exitcode)))
                continue
            if kind == "tick":
                self._tick(value)
                continue
            self._running.remove(entry)
            self._idle.append(worker)
            if kind == "failed":
                error, trace = value
                error.__cause__ = WorkerTraceback(trace)
                ended.append(Ended(task, error=error))
            else:
                ended.append(Ended(task, value))
        return ended

    def _start(self, task: Any, deaths: int) -> None:
        worker = self._alive() or self._new()
        self._running.append((worker, task, deaths))
        with contextlib.suppress(OSError):  # a process that died is found out by `finished`
            worker.line.send(task)

    def _alive(self) -> _Worker | None:
        """An idle process; those that died meanwhile are closed."""
        while self._idle:
            worker = self._idle.pop()
            if worker.process.is_alive():
                return worker
            worker.line.close()
        return None

    def _new(self) -> _Worker:
        taken = [worker.gpu for worker, _, _ in self._running]
        gpu = min(self._gpus, key=taken.count, default="")
        settings = dict.fromkeys(_THREADS if self._threads else (), str(self._threads))
        ours, theirs = (context := get_context("spawn")).Pipe()  # a fork would inherit locks in any state
        process = context.Process(target=_serve, args=(theirs, self._work), daemon=False)
        with _environment({**settings, **({"CUDA_VISIBLE_DEVICES": gpu} if gpu else {})}):
            process.start()
        theirs.close()
        return _Worker(process, ours, gpu)


def _lost(deaths: int, code: int | None) -> WorkerLost:
    cause = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
    lost = WorkerLost(f"its process died {f'{deaths} times, last ' if deaths > 1 else ''}{cause}")
    lost.code = code
    return lost


@contextlib.contextmanager
def _environment(settings: dict[str, str]) -> Iterator[None]:
    """Let processes that are started inside find these variables, and never hear Ctrl-C, not even at first."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    if hasattr(signal, "pthread_sigmask"):
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _serve(line: connection.Connection, work: Work) -> None:
    """Do tasks until the other end is closed: the life of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it reaches every process of a terminal: the first one decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    while True:
        try:
            task = line.recv()
        except EOFError:
            return
        try:
            line.send(("done", work(task, lambda units: line.send(("tick", units)))))
        except Exception as error:
            line.send(("failed", (_portable(error), traceback.format_exc())))


def _portable(error: Exception) -> Exception:
    """The error if it can be pickled, else one with its message that can."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RankscopeError(one_line(error))
    return error


def _leave_with_parent() -> None:
    """Do not outlive a parent that was killed: nobody waits for the result, and another run may want the files."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def available_cores() -> int:
    """Processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
