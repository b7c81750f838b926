"""Runs of the audit in a folder: one JSON per cell, the final weights beside it, and the state of those not finished.

``DIR/<cell id>.json`` is a `RunResult`; ``.safetensors`` holds the weights after the last epoch; ``.state`` belongs to
a run that was interrupted, or cut short by `How.stop`, and is removed when the run has all its epochs. A cell whose
JSON is there is not run again, unless it was cut short, has its state, and is asked for longer now.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from rankscope.atomic import atomic_file
from rankscope.errors import DataError, OptionError, unknown_choice
from rankscope.lab.encoders.cell import Cell, RunResult
from rankscope.lab.encoders.data import CellData, cell_data
from rankscope.lab.encoders.diagnostics import diagnose
from rankscope.lab.encoders.models import AuditModel, build
from rankscope.lab.encoders.stacked import train_stacked
from rankscope.lab.encoders.training import How, Trained, train
from rankscope.lab.fan_out import Engine, Ticks, fan_out
from rankscope.lab.kernels import library
from rankscope.lab.machine import describe
from rankscope.lab.measure import rank_record
from rankscope.lab.precision import PRECISIONS
from rankscope.locks import held
from rankscope.progress import Progress, silent

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
    progress: Progress = silent,
) -> list[RunResult]:
    """Run cells that have no result in a folder yet; return all their results in the cells' order.

    A stopped call goes on where it was: finished cells are read, begun ones continue from their last validation, and
    so do those that were cut short before the epoch that is asked for now.

    Args:
        cells: which; repeated ones run once.
        folder: made if it is not there.
        how: device and precision.
        engine: processes on this machine, or a Ray cluster that shares the folder.
        etth1: path of ETTh1.csv, for cells on it.
        stack: seeds of one setting that are trained in one stack; 0: 16 on a GPU, none on a CPU.
        progress: told epochs.

    Raises:
        OptionError: bad options; ETTh1 is needed and not given.
        DataError: ETTh1 cannot be used, or a result in the folder is damaged.
    """
    how, engine, folder = how or How(), engine or Engine(), Path(folder)
    if how.precision not in PRECISIONS:
        raise OptionError(unknown_choice("precision", how.precision, PRECISIONS))
    folder.mkdir(parents=True, exist_ok=True)
    unique = list(dict.fromkeys(cells))
    stored = {cell: read_result(folder, cell) for cell in unique}
    ready = {cell: one for cell, one in stored.items() if one is not None and not _goes_on(folder, one, how)}
    waiting = [cell for cell in unique if cell not in ready]
    for cell in {replace(cell, seed=0) for cell in waiting if cell.data != "synthetic"}:
        cell_data(cell, etth1)  # a table that cannot be used is refused before anything runs
    total = sum(how.last(cell) for cell in unique)
    done = sum(how.last(cell) for cell in ready)

    def ticks(epochs: int) -> None:
        nonlocal done
        done += epochs
        progress(min(done, total), total, "epochs")

    progress(done, total, "epochs")
    beside = min(engine.processes, max(len(waiting), 1))
    batches = [
        Batch(group, str(folder), how, None if etth1 is None else str(etth1), beside)
        for group in _groups(waiting, stack or (16 if how.device.type == "cuda" else 1))
    ]
    with held(folder / ".lock", "these runs are being made"):
        for results in fan_out(run_batch, batches, engine, ticks):
            ready |= {result.cell: result for result in results}
    return [ready[cell] for cell in cells]


def run_batch(batch: Batch, ticks: Ticks) -> list[RunResult]:
    """Train the cells of a batch, measure them, write their files."""
    folder = Path(batch.folder)
    data = [cell_data(cell, batch.etth1) for cell in batch.cells]
    if len(batch.cells) > 1:
        trained = train_stacked(batch.cells, data, batch.how, progress=lambda one: ticks(one * len(batch.cells)))
    else:
        state = _state(folder, batch.cells[0])
        trained = [train(batch.cells[0], data[0], batch.how, snapshot=state, progress=ticks)]
    results = []
    for cell, one, tensors in zip(batch.cells, trained, data, strict=True):
        results.append(finish(cell, one, tensors, batch))
        write_result(folder, results[-1], one.model)
        if not (results[-1].cut and len(batch.cells) == 1):
            _state(folder, cell).unlink(missing_ok=True)
    return results


def _state(folder: Path, cell: Cell) -> Path:
    return folder / f"{cell.id}.state"


def _goes_on(folder: Path, result: RunResult, how: How) -> bool:
    """Whether a run was cut short before the epoch that is asked for now, and has the state to go on from."""
    return result.cut and result.stopped < how.last(result.cell) and _state(folder, result.cell).is_file()


def finish(cell: Cell, trained: Trained, data: CellData, batch: Batch) -> RunResult:
    """A run's record, measured on its last weights."""
    stopped = batch.how.last(cell)
    result = RunResult(
        cell,
        tuple(trained.points),
        parameters=_count(trained.model),
        encoder_parameters=_count(trained.model.encoder),
        seconds=trained.seconds,
        stopped=stopped if stopped < cell.epochs else 0,
        machine=_machine(batch),
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


def read_result(folder: Path, cell: Cell) -> RunResult | None:
    """The result of a cell, if it is there.

    Raises:
        DataError: the file is damaged.
    """
    path = folder / f"{cell.id}.json"
    if not path.is_file():
        return None
    return RunResult.from_json(path.read_text(encoding="utf-8"), str(path))


def write_result(folder: Path, result: RunResult, model: AuditModel) -> None:
    """Weights first: a cell with a result has its weights."""
    tensors = {name: one.detach().cpu().contiguous() for name, one in model.state_dict().items()}
    target = folder / f"{result.cell.id}.safetensors"
    half = target.with_name(target.name + ".part")
    save_file(tensors, half)
    os.replace(half, target)
    with atomic_file(folder / f"{result.cell.id}.json", force=True) as path:
        path.write_text(result.to_json(), encoding="utf-8")


def load_run(folder: str | Path, cell: Cell) -> AuditModel:
    """A cell's model with the weights after its last epoch, in evaluation mode.

    Raises:
        DataError: the weights are not there.
    """
    path = Path(folder) / f"{cell.id}.safetensors"
    if not path.is_file():
        raise DataError(f"there are no weights of {cell.id} in {folder}: run the cell first.")
    state = torch.get_rng_state()
    model = build(cell)
    torch.set_rng_state(state)
    model.load_state_dict(load_file(path))
    return model.eval()


def _groups(cells: Sequence[Cell], size: int) -> list[tuple[Cell, ...]]:
    """Cells that differ in their seed only, up to ``size`` together, in order of their first."""
    alike: dict[Cell, list[Cell]] = {}
    for cell in cells:
        alike.setdefault(replace(cell, seed=0), []).append(cell)
    if size == 1:
        return [(cell,) for cell in cells]
    return [tuple(group[i : i + size]) for group in alike.values() for i in range(0, len(group), size)]


def _count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
