"""Which cells a study takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankscope.errors import DataError, unknown_choice
from rankscope_lab.precision import FLOAT32
from rankscope_lab.slt.ablations import Setting, ablation
from rankscope_lab.slt.cell import Cell
from rankscope_lab.slt.models import NAIVE

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
