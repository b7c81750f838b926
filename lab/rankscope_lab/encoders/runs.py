"""Runs of the audit in a folder: one JSON per cell, the final weights beside it, and the state of those not finished.

``DIR/<cell id>.json`` is a `RunResult`; ``.safetensors`` holds the weights after the last epoch; ``.state`` belongs to
a run that was interrupted, or cut short by `How.stop`, and is removed when the run has all its epochs. A cell whose
JSON is there is not run again, unless it was cut short, has its state, and is asked for longer now. Seeds that were
trained in one stack have states of their own, from which they go on in stacks of those that have come equally far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from rankscope.engine.pool import Engine, Tick, available_cores, fan_out
from rankscope.engine.progress import Progress, silent
from rankscope.errors import OptionError, RankscopeError, unknown_choice
from rankscope.io.atomic import atomic_file
from rankscope.io.run_store import RunStore
from rankscope_lab.encoders.cell import SYNTHETIC, Cell, RunResult
from rankscope_lab.encoders.data import CellData, cell_data
from rankscope_lab.encoders.diagnostics import diagnose
from rankscope_lab.encoders.models import AuditModel
from rankscope_lab.encoders.snapshots import epochs_done
from rankscope_lab.encoders.stacked import stack_size, train_stacked
from rankscope_lab.encoders.training import How, Trained, train
from rankscope_lab.kernels import library
from rankscope_lab.machine import PRECISIONS, describe, keep_memory
from rankscope_lab.measure import rank_record

STACK = 16
"""Seeds in a stack on a GPU, where they fit."""
RANKED = 32
"""Validation series whose stream is measured at the end of a run."""


@dataclass(frozen=True)
class Batch:
    """Cells that are trained together: one, or on a GPU several that differ in their seed only.

    Attributes:
        cells: which.
        folder: where their files are.
        how: device, precision.
        etth1: path of ETTh1.csv.
        beside: runs on this machine at a time.
    """

    cells: tuple[Cell, ...]
    folder: str
    how: How
    etth1: str | None
    beside: int


def run_cells(
    cells: Sequence[Cell],
    folder: str | Path,
    *,
    how: How | None = None,
    engine: Engine | None = None,
    etth1: str | Path | None = None,
    stack: int = 0,
    force: bool = False,
    progress: Progress = silent,
) -> list[RunResult]:
    """Run cells that have no result in a folder yet; return all their results in the cells' order.

    A stopped call goes on where it was: finished cells are read, begun ones continue from their last validation, and
    so do those that were cut short before the epoch that is asked for now.

    Args:
        cells: which; repeated ones run once.
        folder: made if it is not there.
        how: device and precision.
        engine: processes on this machine, or a Ray cluster that shares the folder; this process by default.
        etth1: path of ETTh1.csv, for cells on it.
        stack: most seeds of one setting that are trained in one stack; 0: 16 on a GPU, none on a CPU. On a GPU stacks
            are made smaller where they would not fit.
        force: forget what the folder holds of the cells, once all else has been checked.
        progress: told epochs.

    Raises:
        OptionError: bad options; ETTh1 is needed and not given; a result in the folder has another precision.
        DataError: ETTh1 cannot be used, or a result in the folder is damaged.
        RankscopeError: another process makes runs in the folder; a single run does not fit on the GPU.
    """
    how, engine, folder = how or How(), engine or Engine(jobs=1), Path(folder)
    if how.precision not in PRECISIONS:
        raise OptionError(unknown_choice("precision", how.precision, PRECISIONS))
    unique = list(dict.fromkeys(cells))
    with run_store(folder).open():
        ready = {} if force else _ready(folder, unique, how)
        waiting = [cell for cell in unique if cell not in ready]
        for cell in {replace(cell, seed=0) for cell in waiting if cell.data != SYNTHETIC}:
            cell_data(cell, etth1)  # a table that cannot be used is refused before anything runs, or is forgotten
        if force:
            forget_runs(folder, unique)
        jobs = min(engine.jobs or available_cores(), max(len(waiting), 1))
        batches = [
            Batch(group, str(folder), how, None if etth1 is None else str(etth1), jobs)
            for group in _groups(waiting, stack or (STACK if how.device.type == "cuda" else 1), folder)
        ]
        ticks = _ticks(sum(map(how.last, ready)), sum(map(how.last, unique)), progress)
        where = replace(engine, device=how.device.type)
        for results in fan_out(run_batch, batches, where, min(jobs, len(batches)), tick=ticks, threads=1):
            ready |= {result.cell: result for result in results}
    return [ready[cell] for cell in cells]


def _ticks(done: int, total: int, progress: Progress) -> Tick:
    """Tell ``progress`` of the epochs that are done already, and of those that are to come."""

    def ticks(epochs: int) -> None:
        nonlocal done
        done += epochs
        progress(min(done, total), total, "epochs")

    ticks(0)
    return ticks


def _ready(folder: Path, cells: Sequence[Cell], how: How) -> dict[Cell, RunResult]:
    """Results that need no further training."""
    stored = stored_runs(folder, cells)
    for one in stored:
        if one.precision != how.precision:
            raise OptionError(
                f"{one.cell.id} was run in {one.precision}, not in {how.precision}: choose another --out, that "
                "--precision, or --force."
            )
    return {one.cell: one for one in stored if not _goes_on(folder, one, how)}


def stored_runs(folder: str | Path, cells: Sequence[Cell]) -> list[RunResult]:
    """Results that a folder holds.

    Raises:
        DataError: one is damaged.
    """
    store = run_store(folder)
    return [one for cell in cells if (one := store.get(cell.id, RunResult)) is not None]


def forget_runs(folder: str | Path, cells: Sequence[Cell]) -> None:
    """Remove results, weights and begun states of cells, so that they are run anew."""
    for cell in cells:
        for suffix in (".json", ".safetensors", ".state"):
            run_store(folder).path(cell.id, suffix).unlink(missing_ok=True)


def run_batch(batch: Batch, ticks: Tick) -> list[RunResult]:
    """Train the cells of a batch, measure them, write their files; on a GPU in parts, where it has no room for all."""
    keep_memory()
    size = min(len(batch.cells), _room(batch))
    if size < len(batch.cells):
        return [one for part in _parts(batch, size) for one in run_batch(part, ticks)]
    try:
        return _run_together(batch, ticks)
    except torch.OutOfMemoryError as error:
        if len(batch.cells) == 1:
            raise RankscopeError(
                f"{batch.cells[0].id} does not fit into the memory of {batch.how.device}: choose --device cpu."
            ) from error
    torch.cuda.empty_cache()
    return [one for part in _parts(batch, len(batch.cells) // 2) for one in run_batch(part, ticks)]


def _run_together(batch: Batch, ticks: Tick) -> list[RunResult]:
    folder = Path(batch.folder)
    data = [cell_data(cell, batch.etth1) for cell in batch.cells]
    states = [_state(folder, cell) for cell in batch.cells]
    if len(batch.cells) > 1:
        count = len(batch.cells)
        trained = train_stacked(batch.cells, data, batch.how, snapshots=states, progress=lambda one: ticks(one * count))
    else:
        trained = [train(batch.cells[0], data[0], batch.how, snapshot=states[0], progress=ticks)]
    results = []
    for cell, one, tensors, state in zip(batch.cells, trained, data, states, strict=True):
        results.append(finish(cell, one, tensors, batch))
        write_result(folder, results[-1], one.model)
        if not results[-1].cut:
            state.unlink(missing_ok=True)
    return results


def _room(batch: Batch) -> int:
    """Seeds of the batch that the device has room for at once."""
    if batch.how.device.type != "cuda":
        return len(batch.cells)
    torch.cuda.empty_cache()  # what the batch before left with torch counts as taken otherwise
    return stack_size(batch.cells[0], torch.cuda.mem_get_info(batch.how.device)[0])


def _parts(batch: Batch, size: int) -> list[Batch]:
    return [replace(batch, cells=batch.cells[at : at + size]) for at in range(0, len(batch.cells), size)]


def _state(folder: Path, cell: Cell) -> Path:
    return run_store(folder).path(cell.id, ".state")


def _goes_on(folder: Path, result: RunResult, how: How) -> bool:
    """Whether a run was cut short before the epoch that is asked for now, and has the state to go on from."""
    return result.cut and result.stopped < how.last(result.cell) and _state(folder, result.cell).is_file()


def finish(cell: Cell, trained: Trained, data: CellData, batch: Batch) -> RunResult:
    """A run's record, measured on its last weights."""
    result = RunResult(
        cell,
        tuple(trained.points),
        parameters=_count(trained.model),
        encoder_parameters=_count(trained.model.encoder),
        seconds=trained.seconds,
        stopped=trained.epochs if trained.epochs < cell.epochs else 0,
        machine=_machine(batch),
        precision=batch.how.precision,
    )
    return result if result.diverged else replace(result, diagnostics=measured(cell, trained.model, data))


def _machine(batch: Batch) -> str:
    """What a run's time depends on."""
    seeds, how = len(batch.cells), batch.how
    if seeds > 1:
        return describe(how.device, f"{seeds} seeds in a stack", how.precision)
    compiled = how.kernels and how.device.type == "cpu" and library() is not None
    beside = f"{batch.beside} runs at a time" if batch.beside > 1 else ""
    return describe(how.device, beside, "compiled kernels" if compiled else "", how.precision)


def measured(cell: Cell, model: AuditModel, data: CellData) -> dict[str, Any]:
    """All that is kept of a model's last weights: the audit's diagnostics, and ranks."""
    device = next(model.parameters()).device
    inputs = data.validation.inputs[:RANKED].to(device)
    return {**diagnose(cell, model, data), "ranks": rank_record(model, inputs)}


def run_store(folder: str | Path) -> RunStore:
    """The store of results, by id of the cell."""
    return RunStore(folder, "the audit", items="")


def write_result(folder: Path, result: RunResult, model: AuditModel) -> None:
    """Weights first: a cell with a result has its weights."""
    tensors = {name: one.detach().cpu().contiguous() for name, one in model.state_dict().items()}
    store = run_store(folder)
    with atomic_file(store.path(result.cell.id, ".safetensors")) as path:
        save_file(tensors, path)
    store.put(result.cell.id, result)


def _groups(cells: Sequence[Cell], size: int, folder: Path) -> list[tuple[Cell, ...]]:
    """Cells that differ in their seed only and have come equally far, up to ``size`` together."""
    if size == 1:
        return [(cell,) for cell in cells]
    alike: dict[tuple[Cell, int], list[Cell]] = {}
    for cell in cells:
        alike.setdefault((replace(cell, seed=0), epochs_done(_state(folder, cell))), []).append(cell)
    return [tuple(group[i : i + size]) for group in alike.values() for i in range(0, len(group), size)]


def _count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
