"""Points on a Ray cluster (``pip install 'rankscope[ray]'``): any number of machines that share the sweep's folder."""

from __future__ import annotations

from typing import Any

from rankscope.engine.cluster import connect, import_ray
from rankscope.errors import one_line
from rankscope.measure.sweep import SweepRow
from rankscope.train.sweeps.pools import RETRIES, lost
from rankscope.train.sweeps.worker import PointTask, run_point


class RayPool:
    """Every point is a Ray task with a GPU of its own where the cluster has GPUs, else with a share of the CPUs.

    A task whose worker or node is lost is started again by Ray, on any node; it finds the newest snapshot in the
    sweep's folder and goes on from there. So that folder has to lie on storage that all nodes see under one path, and
    rankscope has to be installed on all of them.

    Args:
        address: of the cluster, as ``ray.init`` takes it; empty starts Ray on this machine for the time being.
        jobs: points at a time; 0 for as many as the cluster has room for.
        retries: how often Ray starts a lost task again.

    Raises:
        OptionError: Ray is not installed, or no cluster answers at the address.
    """

    def __init__(self, address: str = "", jobs: int = 0, retries: int = RETRIES) -> None:
        self._ray = import_ray()
        self._begun = not self._ray.is_initialized()
        if self._begun:
            connect(self._ray, address, jobs)
        owned = self._ray.cluster_resources()
        self._jobs = jobs
        per_point = {"num_gpus": 1} if owned.get("GPU", 0) >= 1 else {"num_cpus": _cpus(owned.get("CPU", 1), jobs)}
        self._run: Any = self._ray.remote(run_point).options(max_retries=retries, **per_point)
        self._running: dict[Any, PointTask] = {}

    @property
    def room(self) -> bool:
        """Whether fewer than ``jobs`` tasks run; without a limit Ray queues what does not fit."""
        return self._jobs == 0 or len(self._running) < self._jobs

    def start(self, task: PointTask) -> None:
        """Hand a point to Ray."""
        self._running[self._run.remote(task)] = task

    def finished(self, timeout: float) -> list[SweepRow]:
        """Collect tasks that ended."""
        if not self._running:
            return []
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=timeout)
        return [self._row(reference, self._running.pop(reference)) for reference in ready]

    def close(self) -> None:
        """Cancel what still runs, and let go of the cluster if this pool connected to it."""
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._running.clear()
        if self._begun:
            self._ray.shutdown()

    def _row(self, reference: Any, task: PointTask) -> SweepRow:
        try:
            row: SweepRow = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            return lost(task, f"Ray lost its worker for good: {one_line(error)}")
        return row


def _cpus(available: float, jobs: int) -> int:
    return max(1, int(available) // jobs) if jobs else 1
