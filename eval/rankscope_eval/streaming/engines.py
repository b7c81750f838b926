"""Where chunks are forecast: in this process, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rankscope.engine.cluster import connect, import_ray
from rankscope.errors import RankscopeError, one_line
from rankscope.series.files import Rows
from rankscope_eval.streaming.job import Job, Part, forecast_chunk, opened

RETRIES = 2
"""How often Ray starts a task again whose worker was lost."""
AHEAD = 2
"""Chunks per worker that are read ahead."""


@dataclass(frozen=True)
class Engine:
    """Where chunks are forecast.

    Attributes:
        name: ``local``, one chunk after the other here; ``ray``, a task per chunk on a cluster.
        address: of the cluster, as ``ray.init`` takes it; empty starts Ray on this machine for the time being.
        workers: chunks at a time on the cluster; 0 for one per GPU or, without GPUs, one per CPU.
    """

    name: str = "local"
    address: str = ""
    workers: int = 0


def prepare(job: Job, engine: Engine) -> None:
    """Open the model, where that takes time of this process.

    Raises:
        RankscopeError: it cannot be opened.
    """
    if engine.name == "local" and isinstance(job.model, str):
        opened(job.model, job.how)


def run_local(job: Job, chunks: Iterator[Rows]) -> Iterator[Part]:
    """Parts in the order of the chunks; one chunk is in memory at a time."""
    for chunk in chunks:
        yield forecast_chunk(job, chunk)


def run_ray(job: Job, chunks: Iterator[Rows], engine: Engine) -> Iterator[Part]:
    """Parts as they are finished, the same ones as of `run_local`.

    This process reads and writes, the tasks forecast: machines need rankscope and the model (a hub id, a bundled name,
    or a folder that all see under one path), and share no storage. Ray Data is not used: it reads files in blocks of
    its own, and a part, its random numbers with it, is to depend on the file alone.

    Raises:
        OptionError: Ray is not installed, or no cluster answers.
        RankscopeError: the model cannot forecast, or a worker was lost again and again.
    """
    ray = import_ray()
    begun = not ray.is_initialized()
    if begun:
        connect(ray, engine.address, engine.workers)
    pending: list[Any] = []
    try:
        owned = ray.cluster_resources()
        gpus, cpus = int(owned.get("GPU", 0)), int(owned.get("CPU", 1))
        needs = {"num_gpus": 1} if gpus else {"num_cpus": max(1, cpus // engine.workers) if engine.workers else 1}
        task = ray.remote(forecast_chunk).options(max_retries=RETRIES, **needs)
        shared = ray.put(job)
        room = AHEAD * (engine.workers or gpus or cpus)
        for chunk in chunks:
            pending.append(task.remote(shared, chunk))
            while len(pending) >= room:
                yield _next(ray, pending)
        while pending:
            yield _next(ray, pending)
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)
        if begun:
            ray.shutdown()


def _next(ray: Any, pending: list[Any]) -> Part:
    (ready,), pending[:] = ray.wait(pending, num_returns=1)
    try:
        part: Part = ray.get(ready)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        raise (
            cause
            if isinstance(cause, RankscopeError)
            else RankscopeError(f"a chunk failed on the cluster: {one_line(cause)}")
        ) from error
    except ray.exceptions.RayError as error:
        raise RankscopeError(
            f"Ray lost the worker of a chunk {RETRIES + 1} times ({one_line(error)}): go on with --resume."
        ) from error
    return part
