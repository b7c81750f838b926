"""The state of a run of the audit that is not finished, alone or as one seed of a stack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from rankscope.errors import DataError
from rankscope_lab.encoders.cell import Cell, Point
from rankscope_lab.machine import FLOAT32
from rankscope_lab.snapshots import ADAM, BUFFER, WEIGHT, read_state, restore_training, training_tensors, write_state

GLOBAL, ORDER, CUDA = "random/global", "random/order", "random/cuda"


@dataclass(frozen=True)
class Progressed:
    """How far a run is.

    Attributes:
        cell: its id.
        epoch: how many are done.
        points: validations so far.
        seconds: that it took so far.
        precision: of matrix products.
    """

    cell: str
    epoch: int
    points: tuple[Point, ...]
    seconds: float
    precision: str = FLOAT32


@dataclass(frozen=True)
class Snapshot:
    """All that a run needs to go on as if it had not stopped.

    Attributes:
        about: how far it is.
        tensors: weights, state of the optimiser, states of the random generators.
    """

    about: Progressed
    tensors: dict[str, Tensor]

    @classmethod
    def of(cls, about: Progressed, model: nn.Module, adam: torch.optim.AdamW, order: torch.Generator) -> Snapshot:
        """The state of a run by itself."""
        return cls(about, training_tensors(model, adam) | _random(order))

    @classmethod
    def of_stack(
        cls,
        about: Sequence[Progressed],
        models: Sequence[nn.Module],
        stack: dict[str, Tensor],
        adam: torch.optim.AdamW,
        orders: Sequence[torch.Generator],
    ) -> list[Snapshot]:
        """The states of the seeds of a stack; each is that of a run by itself, but for its dropout.

        Args:
            about: of each seed.
            models: that hold each seed's weights.
            stack: parameter name → seeds × its shape, as the optimiser has it.
            adam: of the stack.
            orders: generator of each seed's batches.
        """
        stacked = {
            name: {key: adam.state[one][key].detach().cpu() for key in ADAM}
            for name, one in stack.items()
            if one in adam.state
        }
        made = []
        for index, (one, model, order) in enumerate(zip(about, models, orders, strict=True)):
            tensors = {
                (WEIGHT if name in stack else BUFFER) + name: tensor.detach().cpu().contiguous()
                for name, tensor in model.state_dict().items()
            }
            for name, state in stacked.items():
                tensors |= {
                    f"{key}/{name}": (value[index] if value.ndim else value).clone() for key, value in state.items()
                }
            made.append(cls(one, tensors | _random(order)))
        return made

    def restore(self, model: nn.Module, adam: torch.optim.AdamW, order: torch.Generator) -> None:
        """Put the state back into a fresh model, optimiser and generators."""
        restore_training(self.tensors, model, adam)
        self.restore_random(order)

    def restore_random(self, order: torch.Generator) -> None:
        """Put the states of the generators back."""
        torch.set_rng_state(self.tensors[GLOBAL])
        order.set_state(self.tensors[ORDER])
        if CUDA in self.tensors and torch.cuda.is_available():
            torch.cuda.set_rng_state(self.tensors[CUDA])


@torch.no_grad()
def restore_stack(
    found: Sequence[Snapshot], stack: dict[str, Tensor], adam: torch.optim.AdamW, orders: Sequence[torch.Generator]
) -> None:
    """Put the states of all seeds back into a fresh stack, its optimiser and the seeds' generators."""
    for name, parameter in stack.items():
        parameter.copy_(torch.stack([one.tensors[WEIGHT + name] for one in found]))
        if f"{ADAM[0]}/{name}" in found[0].tensors:
            moments = {key: torch.stack([one.tensors[f"{key}/{name}"] for one in found]) for key in ADAM}
            moments["step"] = moments["step"][0]
            adam.state[parameter] = {key: one.to(parameter.device) for key, one in moments.items()}
    for one, order in zip(found, orders, strict=True):
        one.restore_random(order)


def _random(order: torch.Generator) -> dict[str, Tensor]:
    found = {GLOBAL: torch.get_rng_state(), ORDER: order.get_state()}
    return found | {CUDA: torch.cuda.get_rng_state()} if torch.cuda.is_available() else found


def save_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Write it in place of the one before, in one step."""
    write_state(path, snapshot.tensors, asdict(snapshot.about))


def load_snapshot(path: Path, cell: Cell, precision: str) -> Snapshot | None:
    """What `save_snapshot` wrote; none if there is no such file.

    Raises:
        DataError: the file is damaged, of another cell, or of a run in another precision.
    """
    found = read_state(path)
    if found is None:
        return None
    tensors, about = found
    points = tuple(Point(**point) for point in about.pop("points"))
    made = Progressed(points=points, **about)
    if made.cell != cell.id:
        raise DataError(f"{path} is of the run {made.cell}, not of {cell.id}: delete it.")
    if made.precision != precision:
        raise DataError(f"{path} is of a run in {made.precision}, not in {precision}: delete it, or run that one on.")
    return Snapshot(made, tensors)


def epochs_done(path: Path) -> int:
    """How many epochs the run whose state this is has behind it; 0 where there is none."""
    found = read_state(path)
    return 0 if found is None else int(found[1]["epoch"])
