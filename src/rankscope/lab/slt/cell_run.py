"""One cell in a folder: its data, its files, its training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file

from rankscope.atomic import atomic_file
from rankscope.lab.data.table import VariableTable, read_table
from rankscope.lab.data.windows import ForecastData, forecast_data
from rankscope.lab.slt.cell import Cell, CellResult
from rankscope.lab.slt.models import Sizes, build_model
from rankscope.lab.slt.protocol import protocol
from rankscope.lab.slt.training import CellTraining
from rankscope.locks import held
from rankscope.progress import Progress, silent


def result_file(out: Path, cell: Cell) -> Path:
    """Where a cell's result lies."""
    return out / f"{cell.id}.json"


def read_result(out: Path, cell: Cell) -> CellResult:
    """The result of a finished cell."""
    file = result_file(out, cell)
    return CellResult.from_json(file.read_text(encoding="utf-8"), str(file))


def cell_data(cell: Cell, folder: Path) -> ForecastData:
    """Windows of a cell's table, as its protocol cuts them.

    Raises:
        DataError: the table is missing, damaged, or shorter than a window.
    """
    rules = protocol(cell.protocol)
    table = read_table(folder / f"{cell.dataset}.csv")
    limit = dict(rules.first_columns).get(table.name.lower())
    if limit is not None:
        table = VariableTable(table.name, table.columns[:limit], table.values[:, :limit], table.source)
    return forecast_data(table, rules.split, cell.lookback, cell.horizon, reach_back=rules.reach_back)


def check_cells(cells: Sequence[Cell], folder: Path) -> None:
    """Raise what a table or a model has to complain of, before hours are spent on other cells."""
    checked: dict[tuple[object, ...], int] = {}
    for cell in cells:
        kind = (cell.dataset, cell.protocol, cell.lookback, cell.horizon)
        if kind not in checked:
            checked[kind] = cell_data(cell, folder).season
        with torch.device("meta"):
            build_model(cell.model, Sizes(checked[kind], cell.lookback, cell.horizon))


def run_cell(
    cell: Cell, data: str, out: str, device: str = "cpu", weights: bool = False, progress: Progress = silent
) -> None:
    """Train one cell in this process and write its result; nothing where it is there already."""
    root = Path(out)
    file, state, part = result_file(root, cell), root / f".{cell.id}.state.pt", part_file(root, cell)
    with held(root / ".locks" / cell.id, f"run {cell.id} is being trained"):
        if file.is_file():
            return
        training = CellTraining(cell, cell_data(cell, Path(data)), device=device, state=state)

        def told(result: CellResult) -> None:
            _write(part, result.to_json())
            epoch = result.last
            progress(epoch.number, cell.epochs, f"{cell.id}: test MSE {epoch.test.mse:.4f}")

        result = training.run(told)
        if weights and result.parameters:
            with atomic_file(file.with_suffix(".safetensors")) as path:
                save_file({name: value.contiguous() for name, value in training.model.state_dict().items()}, path)
        _write(file, result.to_json())
        for rest in (state, part):
            rest.unlink(missing_ok=True)


def _write(file: Path, text: str) -> None:
    with atomic_file(file) as path:
        path.write_text(text, encoding="utf-8")


def part_file(out: Path, cell: Cell) -> Path:
    """File of the epochs so far, for those who look on."""
    return out / f".{cell.id}.part.json"


def epochs_done(out: Path, cell: Cell) -> int:
    """Epochs of a cell that are over, whoever trains it."""
    try:
        return len(CellResult.from_json(part_file(out, cell).read_text(encoding="utf-8")).epochs)
    except (OSError, ValueError):
        return cell.epochs if result_file(out, cell).is_file() else 0
