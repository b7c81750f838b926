"""Singular values of the weights during training (Fig. 13)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rankscope.errors import DataError, one_line
from rankscope.families import FAMILIES, Site, select_sites
from rankscope.io.atomic import atomic_file
from rankscope.lowrank import FactoredLinear
from rankscope.numerics.factored import FactoredMatrix
from rankscope.numerics.parallel import parallel_map
from rankscope.numerics.spectrum import singular_values
from rankscope.train.config import PretrainConfig, Snapshots

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow

SPECTRA = "spectra.parquet"
PARTS = "spectra"
COLUMNS = ["step", "site", "stack", "layer", "role", "index", "sigma"]
Matrix = Tensor | FactoredMatrix


def live_sites(config: PretrainConfig, model: Any) -> tuple[Site, ...]:
    """Sites of a network in training that ``config.spectra.roles`` selects.

    Raises:
        OptionError: a role is unknown, or selects nothing.
    """
    return select_sites(FAMILIES[config.family].sites(model.config.to_dict()), list(config.spectra.roles))


def live_matrix(model: Any, site: Site) -> Matrix:
    """Return the matrix that a site of a network in training applies, in factors where it is stored so."""
    module = model.get_submodule(site.module)
    if isinstance(module, FactoredLinear):
        factors = module.matrix()
        return FactoredMatrix(factors.up.detach(), factors.down.detach())
    matrix = module.dense() if callable(getattr(module, "dense", None)) else module.weight
    return matrix.detach()


def due(plan: Snapshots, step: int) -> bool:
    """Return True if spectra are logged after ``step`` optimiser steps; 0 is the start.

    >>> [step for step in range(8) if due(Snapshots(steps=(1,), every=3), step)]
    [0, 1, 3, 6]
    """
    return step in plan.steps or (plan.every > 0 and step % plan.every == 0)


def forget_after(run: Path, step: int) -> None:
    """Drop the spectra of steps that will be repeated."""
    for file in (run / PARTS).glob("[0-9]*.parquet"):
        if int(file.stem) > step:
            file.unlink()


class SpectraLog:
    """Log of spectra: one Parquet file per logged step in the run folder, merged at the end.

    On the CPU the decomposition happens at once, on all cores. A GPU does not wait for it: the weights are copied and
    decomposed in a thread while training goes on.
    """

    def __init__(self, run: Path, sites: Sequence[Site]) -> None:
        self.folder = run / PARTS
        self.sites = tuple(sites)
        self.thread: ThreadPoolExecutor | None = None
        self.running: list[Future[None]] = []

    def take(self, step: int, model: Any) -> None:
        """Log the spectra of ``model`` as those after ``step`` steps."""
        with torch.no_grad():
            matrices = [live_matrix(model, site) for site in self.sites]
        if all(_device(matrix) == "cpu" for matrix in matrices):
            self._write(step, matrices)
            return
        copies = [_copy(matrix) for matrix in matrices]
        self.thread = self.thread or ThreadPoolExecutor(1, "spectra")
        self.running.append(self.thread.submit(self._write, step, copies))

    def finish(self) -> None:
        """Wait for pending writes and raise errors of the writer thread."""
        while self.running:
            self.running.pop(0).result()

    def gather(self, target: Path) -> None:
        """Write all steps as one table into the folder ``target``."""
        self.finish()
        if self.thread is not None:
            self.thread.shutdown()
        if self.folder.is_dir():
            read_spectra(self.folder.parent).to_parquet(target / SPECTRA, index=False)

    def _write(self, step: int, matrices: Sequence[Matrix]) -> None:
        import pyarrow.parquet

        sigmas = list(parallel_map(_sigma, matrices))
        self.folder.mkdir(parents=True, exist_ok=True)
        with atomic_file(self.folder / f"{step:09d}.parquet") as path:
            pyarrow.parquet.write_table(_table(step, self.sites, sigmas), path)


def read_spectra(folder: Path | str) -> pd.DataFrame:
    """Read the spectra that a finished or an unfinished run has logged.

    Args:
        folder: the checkpoint's folder, or the folder of its snapshots.

    Returns:
        One row per singular value: step, site (tensor name), stack, layer (missing outside the layers), role, index
        (0 is the largest) and sigma (absolute). A factored matrix has as many rows as its rank: the rest are zero.

    Raises:
        DataError: no spectra were logged there, or a file of them is damaged.
    """
    import pandas as pd

    whole, parts = Path(folder) / SPECTRA, sorted((Path(folder) / PARTS).glob("[0-9]*.parquet"))
    if whole.is_file():
        return _read(whole)
    if not parts:
        raise DataError(f"{folder} holds no {SPECTRA}: log spectra by the section spectra of the run's config.")
    return pd.concat([_read(part) for part in parts], ignore_index=True)


def _read(file: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_parquet(file, columns=COLUMNS)
    except Exception as error:
        raise DataError(
            f"{file} holds no spectra ({one_line(error)[:120]}). Delete the file, and its spectra are left out."
        ) from error


def _sigma(matrix: Matrix) -> Tensor:
    return matrix.singular_values() if isinstance(matrix, FactoredMatrix) else singular_values(matrix)


def _table(step: int, sites: Sequence[Site], sigmas: Sequence[Tensor]) -> pyarrow.Table:
    import pyarrow

    pairs = [(site, len(sigma)) for site, sigma in zip(sites, sigmas, strict=True)]
    rows = [site for site, n in pairs for _ in range(n)]
    return pyarrow.table(
        {
            "step": pyarrow.array([step] * len(rows), pyarrow.int64()),
            "site": [site.name for site in rows],
            "stack": [site.stack for site in rows],
            "layer": pyarrow.array([site.layer for site in rows], pyarrow.int64()),
            "role": [site.role for site in rows],
            "index": pyarrow.array([i for _, n in pairs for i in range(n)], pyarrow.int64()),
            "sigma": torch.cat(list(sigmas)).numpy(),
        }
    )


def _device(matrix: Matrix) -> str:
    return (matrix.up if isinstance(matrix, FactoredMatrix) else matrix).device.type


def _copy(matrix: Matrix) -> Matrix:
    if isinstance(matrix, FactoredMatrix):
        return FactoredMatrix(matrix.up.to("cpu", copy=True), matrix.down.to("cpu", copy=True))
    return matrix.to("cpu", copy=True)
