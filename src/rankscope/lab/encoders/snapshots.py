"""The state of a run that is not finished, in one safetensors file."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from rankscope.lab.encoders.cell import Cell, Point

ADAM = ("exp_avg", "exp_avg_sq", "step")


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
        tensors = {"random/global": torch.get_rng_state(), "random/order": order.get_state()}
        for name, parameter in model.named_parameters():
            tensors[f"weight/{name}"] = parameter.detach().cpu()
            tensors |= {f"{key}/{name}": adam.state[parameter][key].detach().cpu() for key in ADAM}
        if torch.cuda.is_available():
            tensors["random/cuda"] = torch.cuda.get_rng_state()
        return cls(epoch, tuple(points), seconds, tensors, cell.id)

    @torch.no_grad()
    def restore(self, model: nn.Module, adam: torch.optim.AdamW, order: torch.Generator) -> None:
        """Put the state back into a fresh model, optimiser and generators."""
        for name, parameter in model.named_parameters():
            parameter.copy_(self.tensors[f"weight/{name}"])
            adam.state[parameter] = {key: self.tensors[f"{key}/{name}"].to(parameter.device, copy=True) for key in ADAM}
        torch.set_rng_state(self.tensors["random/global"])
        order.set_state(self.tensors["random/order"])
        if "random/cuda" in self.tensors and torch.cuda.is_available():
            torch.cuda.set_rng_state(self.tensors["random/cuda"])


def save_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Write it in place of the one before, in one step."""
    about = {
        "cell": snapshot.cell,
        "epoch": snapshot.epoch,
        "seconds": snapshot.seconds,
        "points": [asdict(point) for point in snapshot.points],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(path.name + ".part")
    save_file(snapshot.tensors, half, metadata={"run": json.dumps(about)})
    os.replace(half, path)


def load_snapshot(path: Path, cell: Cell) -> Snapshot | None:
    """What `save_snapshot` wrote for this cell; none if there is no such file, or an unreadable one."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {})["run"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, KeyError, json.JSONDecodeError):
        return None
    if about["cell"] != cell.id:
        return None
    points = tuple(Point(**point) for point in about["points"])
    return Snapshot(about["epoch"], points, about["seconds"], tensors, about["cell"])
