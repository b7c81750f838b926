"""Run a function on many tasks: in this process, in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rankscope.engine.cluster import RayPool
from rankscope.engine.pool import Engine, InProcess, Pool, Processes, Tick, Work


def open_pool(
    work: Work,
    engine: Engine,
    jobs: int,
    *,
    tick: Tick = lambda units: None,
    threads: int = 0,
    gpus: tuple[str, ...] = (),
    retries: int = 0,
    ahead: int = 0,
) -> Pool:
    """Open the pool of an engine.

    Args:
        work: the function.
        engine: where.
        jobs: tasks at a time on this machine; 1 is this process itself, unless there are several ``gpus``.
        tick: called with the units of work of all tasks; not called on a cluster.
        threads: of a process, in numerical libraries; 0 leaves them alone.
        gpus: of this machine, handed out in turn.
        retries: how often a task whose process died is begun again; it finds its own files.
        ahead: tasks that wait on a cluster for every one that runs there; 0 for any number.

    Raises:
        OptionError: Ray is not installed, or no cluster answers.
        RankscopeError: the cluster has no GPU for tasks that need one.
    """
    if engine.name == "ray":
        return RayPool(work, engine, threads=threads, ahead=ahead)
    # one process and several GPUs would have transformers split every batch over all of them
    return (
        InProcess(work, tick) if jobs <= 1 and len(gpus) <= 1 else Processes(work, jobs, tick, threads, gpus, retries)
    )


def fan_out(work: Work, tasks: Iterable[Any], engine: Engine, jobs: int, **options: Any) -> Iterator[Any]:
    """Results of ``work`` in the order in which they are finished; tasks are taken when there is room for them.

    An error of a task, or of what reads the results, ends the tasks that run; those that wait are not begun. Arguments
    are those of `open_pool`.
    """
    waiting, none = iter(tasks), object()
    with open_pool(work, engine, jobs, **options) as pool:
        more = True
        while more or pool.busy:
            while more and pool.room:
                task = next(waiting, none)
                more = task is not none
                if more:
                    pool.start(task)
            for ended in pool.finished():
                if ended.error is not None:
                    raise ended.error
                yield ended.result
