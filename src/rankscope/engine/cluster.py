"""Tasks on a Ray cluster (``pip install 'rankscope[ray]'``): any number of machines."""

from __future__ import annotations

import signal
import socket
import threading
from typing import Any

from rankscope.engine.pool import LOOK, Ended, Engine, Pool, Work, WorkerLost
from rankscope.errors import OptionError, RankscopeError, one_line

ANSWER = 10.0
"""Seconds within which a cluster has to answer."""
RETRIES = 2
"""Retries of a Ray task whose worker or node was lost."""


class RayPool(Pool):
    """Every task has a GPU to itself where it computes on one, else a share of the CPUs.

    A task whose worker or node is lost is begun again by Ray, on any node: what it goes on from has to lie on storage
    that all nodes see under one path, and rankscope has to be installed on all of them.

    Args:
        work: the function; it is sent once.
        engine: address and device; jobs are tasks at a time, or, of a Ray that is started here, its CPUs.
        threads: of a task, in torch; 0 leaves them alone.
        ahead: tasks that wait for every one that runs; 0 for any number.

    Raises:
        OptionError: Ray is not installed, or no cluster answers at the address.
        RankscopeError: the cluster has no GPU for tasks that need one.
    """

    def __init__(self, work: Work, engine: Engine, *, threads: int = 0, ahead: int = 0) -> None:
        self._ray = import_ray()
        self._begun = not self._ray.is_initialized()
        if self._begun:
            connect(self._ray, engine.address, engine.jobs)
        owned = self._ray.cluster_resources()
        gpus, cpus = (0 if engine.device == "cpu" else int(owned.get("GPU", 0))), int(owned.get("CPU", 1))
        if engine.device.startswith("cuda") and not gpus:
            self._leave()
            raise RankscopeError("the Ray cluster has no GPU: choose --device cpu, or add a machine that has one.")
        largest = max((int(node["Resources"].get("CPU", 0)) for node in self._ray.nodes() if node["Alive"]), default=1)
        share = max(1, min(cpus // engine.jobs, largest)) if engine.jobs else 1  # a task runs on one machine
        needs = {"num_gpus": 1} if gpus else {"num_cpus": share}
        self._room = (ahead or 1) * (engine.jobs or gpus or cpus) if ahead or engine.jobs else 0
        self._remote: Any = self._ray.remote(_alone).options(max_retries=RETRIES, **needs)
        self._shared = self._ray.put((work, threads))
        self._running: dict[Any, Any] = {}

    def close(self) -> None:
        """Cancel what still runs, and let go of the cluster if this pool connected to it."""
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._running.clear()
        self._leave()

    @property
    def room(self) -> bool:
        """True if fewer tasks are submitted than may; Ray queues what does not fit."""
        return not self._room or len(self._running) < self._room

    @property
    def busy(self) -> bool:
        """True if any task is submitted."""
        return bool(self._running)

    def start(self, task: Any) -> None:
        """Hand a task to Ray."""
        self._running[self._remote.remote(self._shared, task)] = task

    def finished(self, timeout: float = LOOK) -> list[Ended]:
        """Collect tasks that ended."""
        if not self._running:
            return []
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=timeout)
        return [self._ended(reference, self._running.pop(reference)) for reference in ready]

    def _ended(self, reference: Any, task: Any) -> Ended:
        try:
            return Ended(task, self._ray.get(reference))
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause
            if not isinstance(cause, RankscopeError):
                cause = RankscopeError(f"a task failed on the cluster: {one_line(cause)}")
            return Ended(task, error=cause)
        except self._ray.exceptions.RayError as error:
            return Ended(task, error=WorkerLost(f"Ray lost its worker {RETRIES + 1} times: {one_line(error)}"))

    def _leave(self) -> None:
        if self._begun:
            self._ray.shutdown()


def _alone(shared: tuple[Work, int], task: Any) -> Any:
    work, threads = shared
    if threads:
        import torch

        torch.set_num_threads(threads)
    return work(task, lambda units: None)


def import_ray() -> Any:
    """The package ray.

    Raises:
        OptionError: it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise OptionError("engine ray needs Ray: pip install 'rankscope[ray]', or use engine local.") from error
    return ray


def connect(ray: Any, address: str, jobs: int) -> None:
    """Join the cluster at ``address``, as ``ray.init`` takes it; empty starts Ray on this machine.

    Args:
        ray: the package.
        address: of the cluster.
        jobs: CPUs of a Ray that is started here; 0 for all.

    Raises:
        OptionError: no cluster answers.
    """
    own = {} if address else {"num_cpus": jobs or None, "include_dashboard": False}
    _check_answers(address)
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address or "local", log_to_driver=False, configure_logging=False, **own)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise OptionError(f"no Ray cluster answers at {address!r}: {one_line(error)}") from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)  # Ray puts a handler of its own in place


def _check_answers(address: str) -> None:
    """Refuse ``host:port`` where nothing listens: Ray itself would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER).close()
    except (OSError, OverflowError) as error:
        raise OptionError(f"no Ray cluster answers at {address!r}: {one_line(error)}") from error
