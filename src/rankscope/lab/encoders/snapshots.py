"""The state of a run of the audit that is not finished."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from rankscope.errors import DataError
from rankscope.lab.encoders.cell import Cell, Point
from rankscope.lab.snapshots import read_state, restore_training, training_tensors, write_state

GLOBAL, ORDER, CUDA = "random/global", "random/order", "random/cuda"


@dataclass(frozen=True)
class Snapshot:
    """All that a run needs to go on as if it had not stopped.

    Attributes:
        epoch: how many are done.
        points: validations so far.
        seconds: that it took so far.
        tensors: weights, state of the optimiser, states of the random generators.
        cell: its id.
    """

    epoch: int
    points: tuple[Point, ...]
    seconds: float
    tensors: dict[str, Tensor]
    cell: str

    @classmethod
    def of(
        cls,
        cell: Cell,
        epoch: int,
        points: Sequence[Point],
        seconds: float,
        model: nn.Module,
        adam: torch.optim.AdamW,
        order: torch.Generator,
    ) -> Snapshot:
        """The state of a run."""
        tensors = training_tensors(model, adam) | {GLOBAL: torch.get_rng_state(), ORDER: order.get_state()}
        if torch.cuda.is_available():
            tensors[CUDA] = torch.cuda.get_rng_state()
        return cls(epoch, tuple(points), seconds, tensors, cell.id)

    def restore(self, model: nn.Module, adam: torch.optim.AdamW, order: torch.Generator) -> None:
        """Put the state back into a fresh model, optimiser and generators."""
        restore_training(self.tensors, model, adam)
        torch.set_rng_state(self.tensors[GLOBAL])
        order.set_state(self.tensors[ORDER])
        if CUDA in self.tensors and torch.cuda.is_available():
            torch.cuda.set_rng_state(self.tensors[CUDA])


def save_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Write it in place of the one before, in one step."""
    points = [asdict(point) for point in snapshot.points]
    about = {"cell": snapshot.cell, "epoch": snapshot.epoch, "seconds": snapshot.seconds, "points": points}
    write_state(path, snapshot.tensors, about)


def load_snapshot(path: Path, cell: Cell) -> Snapshot | None:
    """What `save_snapshot` wrote; none if there is no such file.

    Raises:
        DataError: the file is damaged, or of another cell.
    """
    found = read_state(path)
    if found is None:
        return None
    tensors, about = found
    if about["cell"] != cell.id:
        raise DataError(f"{path} is of the run {about['cell']}, not of {cell.id}: delete it.")
    points = tuple(Point(**point) for point in about["points"])
    return Snapshot(about["epoch"], points, about["seconds"], tensors, about["cell"])
