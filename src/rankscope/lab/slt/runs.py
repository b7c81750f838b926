"""Cells in a folder: those that are done are read, the others trained, here or on a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rankscope.cluster import connect, import_ray
from rankscope.errors import OptionError, unknown_choice
from rankscope.lab.slt.cell import Cell, CellResult
from rankscope.lab.slt.cell_run import check_cells, epochs_done, read_result, result_file, run_cell
from rankscope.progress import Progress, silent

ENGINES = ("local", "ray")
BEAT = 5.0
"""Seconds between two looks at how far other processes are."""


@dataclass(frozen=True)
class Place:
    """Where cells run, and what is kept of them.

    Attributes:
        engine: ``local`` or ``ray``.
        jobs: cells at a time; on a cluster 0 is as many as fit.
        address: of the Ray cluster; empty starts Ray on this machine.
        device: ``cpu`` or ``cuda``.
        weights: keep the last weights, as ``<cell.id>.safetensors``.
    """

    engine: str = "local"
    jobs: int = 1
    address: str = ""
    device: str = "cpu"
    weights: bool = False

    def __post_init__(self) -> None:
        """Refuse unknown engines.

        Raises:
            OptionError: an unknown engine, a negative number of jobs, or an address without Ray.
        """
        if self.engine not in ENGINES:
            raise OptionError(unknown_choice("engine", self.engine, ENGINES))
        if self.jobs < 0 or (self.address and self.engine != "ray"):
            raise OptionError(f"jobs must be at least 0 and an address needs engine ray, got {self.jobs}.")


def run_cells(
    cells: Sequence[Cell],
    data: Path | str,
    out: Path | str,
    *,
    place: Place | None = None,
    progress: Progress = silent,
) -> list[CellResult]:
    """Train every cell that ``out`` does not hold yet; a run that was stopped goes on after its last epoch.

    Args:
        cells: which; the same may stand twice.
        data: folder of the tables, ``<dataset>.csv`` each.
        out: folder of the results, ``<cell.id>.json`` each.
        place: where they run; in this process by default.
        progress: told epochs done over epochs in all.

    Returns:
        Results in the order of the cells, each once.

    Raises:
        DataError: a table or a result cannot be read, or is too short.
        RankscopeError: another process runs one of the cells.
    """
    where, root, source = place or Place(), Path(out), Path(data)
    unique = list(dict.fromkeys(cells))
    left = [cell for cell in unique if not result_file(root, cell).is_file()]
    check_cells(left, source)
    if left:
        root.mkdir(parents=True, exist_ok=True)
        spread = _inline if where.engine == "local" and where.jobs <= 1 else _spread
        spread(left, source, root, where, progress)
    return [read_result(root, cell) for cell in unique]


def _inline(cells: Sequence[Cell], data: Path, out: Path, place: Place, progress: Progress) -> None:
    total, before = sum(cell.epochs for cell in cells), 0
    progress(sum(epochs_done(out, cell) for cell in cells[:1]), total, cells[0].id)
    for cell in cells:

        def told(done: int, of: int, what: str, before: int = before) -> None:
            progress(before + done, total, what)

        run_cell(cell, str(data), str(out), place.device, place.weights, told)
        before += cell.epochs


def _spread(cells: Sequence[Cell], data: Path, out: Path, place: Place, progress: Progress) -> None:
    total = sum(cell.epochs for cell in cells)
    arguments = [(cell, str(data.resolve()), str(out.resolve()), place.device, place.weights) for cell in cells]
    ended = _on_ray(arguments, place) if place.engine == "ray" else _in_processes(arguments, place.jobs)
    for over in ended:
        done = sum(epochs_done(out, cell) for cell in cells)
        progress(done, total, f"{over} of {len(cells)} runs over")


def _in_processes(arguments: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[int]:
    """How many cells are over, every few seconds; errors of a cell are raised."""
    context = multiprocessing.get_context("spawn")
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_share_cores, initargs=(threads,)) as pool:
        waiting: set[Future[None]] = {pool.submit(run_cell, *one) for one in arguments}
        try:
            while waiting:
                ready, waiting = wait(waiting, BEAT, FIRST_COMPLETED)
                for one in ready:
                    one.result()
                yield len(arguments) - len(waiting)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _share_cores(threads: int) -> None:
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(threads)


def _on_ray(arguments: Sequence[tuple[Any, ...]], place: Place) -> Iterator[int]:
    """As `_in_processes`, on a cluster whose machines all see the folders under the same paths."""
    ray = import_ray()
    begun = not ray.is_initialized()
    if begun:
        connect(ray, place.address, place.jobs)
    try:
        needs = {"num_gpus": 1} if place.device == "cuda" else {"num_cpus": 1}
        task: Callable[..., Any] = ray.remote(run_cell).options(max_retries=2, **needs).remote
        queue: list[tuple[Any, ...]] = list(arguments)
        running: list[Any] = []
        while queue or running:
            while queue and (place.jobs == 0 or len(running) < place.jobs):
                running.append(task(*queue.pop(0)))
            ready, running = ray.wait(running, num_returns=1, timeout=BEAT)
            ray.get(ready)
            yield len(arguments) - len(queue) - len(running)
    finally:
        if begun:
            ray.shutdown()
