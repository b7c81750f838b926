"""One cell in a folder: its data, its files, its training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from rankscope.engine.device import resolve_device
from rankscope.engine.pool import Tick
from rankscope.io.atomic import atomic_file
from rankscope.io.run_store import RunStore
from rankscope_lab.data.table import VariableTable, benchmark_columns, read_table
from rankscope_lab.data.windows import ForecastData, forecast_data
from rankscope_lab.machine import keep_memory
from rankscope_lab.slt.cell import Cell, CellResult
from rankscope_lab.slt.models import Sizes, build_model
from rankscope_lab.slt.protocol import protocol
from rankscope_lab.slt.training import CellTraining, check_table


def run_store(out: Path) -> RunStore:
    """The store of results, by id of the cell."""
    return RunStore(out, "the study", items="")


def cell_data(cell: Cell, folder: Path, *, ignore_times: bool = False) -> ForecastData:
    """Windows of a cell's table, as its protocol cuts them.

    Raises:
        DataError: the table is missing, damaged, or shorter than a window.
    """
    rules = protocol(cell.protocol)
    file = folder / f"{cell.dataset}.csv"
    table = read_table(file, benchmark_columns(file), ignore_times=ignore_times)
    limit = dict(rules.first_columns).get(table.name.lower())
    if limit is not None:
        table = VariableTable(table.name, table.columns[:limit], table.values[:, :limit], table.source, table.freq)
    return forecast_data(table, rules.split, cell.lookback, cell.horizon, reach_back=rules.reach_back)


def check_cells(cells: Sequence[Cell], folder: Path, out: Path, *, ignore_times: bool = False) -> None:
    """Raise what a table, a model or a finished run has to complain of, before hours are spent on other cells.

    Raises:
        DataError: a table is missing, damaged, or shorter than a window; a season is longer than the look-back; a
            finished run in ``out`` is of another table.
    """
    checked: dict[tuple[object, ...], ForecastData] = {}
    for cell in cells:
        kind = (cell.dataset, cell.protocol, cell.lookback, cell.horizon)
        if kind not in checked:
            checked[kind] = cell_data(cell, folder, ignore_times=ignore_times)
        with torch.device("meta"):
            build_model(cell.model, Sizes(checked[kind].season, cell.lookback, cell.horizon))
        done = run_store(out).get(cell.id, CellResult)
        if done is not None:
            check_table(done, checked[kind], str(run_store(out).path(cell.id)))


@dataclass(frozen=True)
class CellTask:
    """What a process has to know to train a cell.

    Attributes:
        cell: which.
        data: folder of the tables.
        out: folder of the results.
        device: ``auto``, ``cpu`` or ``cuda``.
        ignore_times: take the table's rows as they stand, see `read_table`.
    """

    cell: Cell
    data: str
    out: str
    device: str = "cpu"
    ignore_times: bool = False


def run_task(task: CellTask, ticks: Tick) -> None:
    """Train one cell in this process; write its result, the tested weights beside it; nothing where it is there."""
    keep_memory()
    store, cell = run_store(Path(task.out)), task.cell
    state = store.root / f".{cell.id}.state"
    with store.claim(cell.id):
        if cell.id in store:
            return
        data = cell_data(cell, Path(task.data), ignore_times=task.ignore_times)
        training = CellTraining(cell, data, device=resolve_device(task.device), state=state)
        if training.result.epochs:
            ticks(len(training.result.epochs))
        result = training.run(lambda result: ticks(1))
        if result.parameters:
            with atomic_file(store.path(cell.id, ".safetensors")) as path:
                save_file({name: value.contiguous() for name, value in training.model.state_dict().items()}, path)
        store.put(cell.id, result)
        state.unlink(missing_ok=True)
