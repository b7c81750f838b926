"""Cells of a study and their runs in a folder: finished ones are read, others trained, here or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankscope.engine.pool import Engine, available_cores, fan_out
from rankscope.engine.progress import Progress, silent
from rankscope.errors import DataError, unknown_choice
from rankscope_lab.machine import FLOAT32
from rankscope_lab.slt.ablations import Setting, ablation
from rankscope_lab.slt.cell import Cell, CellResult
from rankscope_lab.slt.cell_run import CellTask, check_cells, run_store, run_task
from rankscope_lab.slt.models import NAIVE


def run_cells(
    cells: Sequence[Cell],
    data: Path | str,
    out: Path | str,
    *,
    engine: Engine | None = None,
    ignore_times: bool = False,
    progress: Progress = silent,
) -> list[CellResult]:
    """Train every cell that ``out`` does not hold yet; a run that was stopped goes on after its last epoch.

    Args:
        cells: which; the same may stand twice.
        data: folder of the tables, ``<dataset>.csv`` each.
        out: folder of the results, ``<cell.id>.json`` each, and of the tested weights, ``<cell.id>.safetensors``.
        engine: where they run; in this process, on the CPU, by default.
        ignore_times: take the tables' rows as they stand, whatever their times say.
        progress: told epochs done over those of the cells that are not there yet.

    Returns:
        Results in the order of the cells, each once.

    Raises:
        DataError: a table or a result cannot be read, a table is too short, or a result is of another table.
        RankscopeError: another process runs one of the cells.
    """
    where, store, source = engine or Engine(jobs=1, device="cpu"), run_store(Path(out)), Path(data)
    unique = list(dict.fromkeys(cells))
    left = [cell for cell in unique if cell.id not in store]
    check_cells(unique, source, store.root, ignore_times=ignore_times)
    done, total = 0, sum(max(1, cell.epochs) for cell in left)  # a model that learns nothing is scored once

    def ticks(epochs: int) -> None:
        nonlocal done
        done += epochs
        progress(done, total, f"{len(left)} runs")

    if left:
        store.root.mkdir(parents=True, exist_ok=True)
        ticks(0)
    places = (str(source.resolve()), str(store.root.resolve()))
    tasks = [CellTask(cell, *places, where.device, ignore_times) for cell in left]
    jobs = min(where.jobs or available_cores(), len(tasks))
    for _ in fan_out(run_task, tasks, where, jobs, tick=ticks, threads=1):
        pass
    return [result for cell in unique if (result := store.get(cell.id, CellResult))]


TABLES = ("ETTh1", "ETTh2")
"""Tables of a study unless others are named."""


def find_tables(folder: Path | str, names: Sequence[str] = TABLES) -> tuple[str, ...]:
    """The names as the folder's files spell them: ``weather`` finds ``Weather.csv``.

    Raises:
        DataError: there is no folder, or no such table in it.
    """
    place = Path(folder)
    if not place.is_dir():
        raise DataError(f"there is no folder {place}: give the one that holds {', '.join(names)} as CSV files.")
    spelt = {file.stem.casefold(): file.stem for file in sorted(place.glob("*.csv"))}
    for name in names:
        if name.casefold() not in spelt:
            known = unknown_choice("table", name, spelt.values()) if spelt else f"it holds no CSV file, not {name!r}."
            raise DataError(f"in {place}: {known}")
    return tuple(dict.fromkeys(spelt[name.casefold()] for name in names))


def study_cells(
    settings: Sequence[Setting], datasets: Sequence[str], protocols: Sequence[str], seeds: int, **options: Any
) -> list[Cell]:
    """Cells of every setting on every table; seed by seed, so that a stopped study has whole seeds.

    What learns nothing has one seed and no epochs; other options are fields of `Cell`.
    """
    cells = []
    for seed in range(seeds):
        for dataset in datasets:
            for name in protocols:
                for setting in settings:
                    if setting.model != NAIVE:
                        cells.append(Cell(dataset, setting.model, name, setting.revin, seed, **options))
                    elif seed == 0 and not setting.revin:
                        cells.append(Cell(dataset, NAIVE, name, **{**options, "epochs": 0, "precision": FLOAT32}))
    return list(dict.fromkeys(cells))


def settings_of(models: Sequence[str], ablations: Sequence[str], revin: bool = False) -> list[Setting]:
    """The settings that models and ablations take, each once."""
    found = [Setting(model) for model in models]
    if revin:
        found += [Setting(model, True) for model in models if model != NAIVE]
    found += [setting for name in ablations for setting in ablation(name).settings]
    return list(dict.fromkeys(found))
