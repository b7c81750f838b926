"""Run files of a study: records, final weights, and states of unfinished trainings.

A state is one safetensors file of weights, optimiser, random generators, and a note. Several models whose parameters
lie in one stack have a state each, from which each can go on alone.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from rankscope.engine import Progress
from rankscope.engine.pool import Tick
from rankscope.errors import DataError, one_line
from rankscope.io import codec
from rankscope.io.atomic import atomic_file, sweep
from rankscope.io.run_store import RunStore


def run_store(folder: str | Path, what: str) -> RunStore:
    """Return the store of a study's records, ``<id>.json`` in the folder itself; ``what`` names it in errors."""
    return RunStore(folder, what, items="")


def write_weights(file: Path, model: nn.Module) -> None:
    """Write a model's parameters and buffers atomically as safetensors."""
    tensors = {name: one.detach().cpu().contiguous() for name, one in model.state_dict().items()}
    with atomic_file(file) as path:
        save_file(tensors, path)


def count_parameters(model: nn.Module) -> int:
    """Return the number of trainable parameters."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def epoch_ticks(progress: Progress, total: int, what: str, done: int = 0) -> Tick:
    """Report finished epochs to ``progress``; return a callback that adds further ones."""

    def ticks(epochs: int) -> None:
        nonlocal done
        done += epochs
        progress(min(done, total), total, what)

    ticks(0)
    return ticks


ADAM = ("exp_avg", "exp_avg_sq", "step")
"""State of Adam and AdamW per parameter."""
WEIGHT, BUFFER = "weight/", "buffer/"
GLOBAL, ORDER, CUDA = "random/global", "random/order", "random/cuda"
_ABOUT = "about"


def training_tensors(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Parameters, buffers that are stored, and the state of Adam or AdamW, on the CPU."""
    tensors = {}
    parameters = dict(model.named_parameters())
    for name, parameter in parameters.items():
        tensors[WEIGHT + name] = parameter.detach()
        if parameter in optimiser.state:  # not where it had no gradient yet
            tensors |= {f"{key}/{name}": optimiser.state[parameter][key].detach() for key in ADAM}
    tensors |= {BUFFER + name: one for name, one in model.state_dict().items() if name not in parameters}
    return {name: one.cpu().contiguous() for name, one in tensors.items()}


@torch.no_grad()
def restore_training(tensors: Mapping[str, Tensor], model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    """Restore `training_tensors`.

    Raises:
        KeyError: a tensor is missing: they are of another model.
    """
    stored = model.state_dict()
    for name, parameter in model.named_parameters():
        parameter.copy_(tensors[WEIGHT + name])
        if any(f"{key}/{name}" in tensors for key in ADAM):
            found = {key: tensors[f"{key}/{name}"] for key in ADAM}
            optimiser.state[parameter] = {key: one.to(parameter.device, copy=True) for key, one in found.items()}
        del stored[name]
    for name, buffer in stored.items():
        buffer.copy_(tensors[BUFFER + name])


def stack_tensors(
    models: Sequence[nn.Module], stack: Mapping[str, Tensor], optimiser: torch.optim.Optimizer
) -> list[dict[str, Tensor]]:
    """`training_tensors` of each model of a stack.

    Args:
        models: with their own weights.
        stack: parameter name → models × its shape, as the optimiser has it.
        optimiser: of the stack.
    """
    state = {
        name: {key: optimiser.state[one][key].detach().cpu() for key in ADAM}
        for name, one in stack.items()
        if one in optimiser.state
    }
    made = []
    for index, model in enumerate(models):
        tensors = {
            (WEIGHT if name in stack else BUFFER) + name: tensor.detach().cpu().contiguous()
            for name, tensor in model.state_dict().items()
        }
        for name, values in state.items():
            tensors |= {f"{key}/{name}": (one[index] if one.ndim else one).clone() for key, one in values.items()}
        made.append(tensors)
    return made


def check_stack(tensors: Mapping[str, Tensor], stack: Mapping[str, Tensor]) -> None:
    """Check that the `stack_tensors` of one model fit a stack.

    Raises:
        KeyError: a tensor is missing.
        TypeError: a tensor has another shape.
    """
    for name, parameter in stack.items():
        keys = (WEIGHT + name, *(f"{key}/{name}" for key in ADAM))
        for key in keys if f"{ADAM[0]}/{name}" in tensors else keys[:1]:
            wanted = () if key == keys[-1] else tuple(parameter.shape[1:])
            if tuple(tensors[key].shape) != wanted:
                raise TypeError(f"{key} has shape {tuple(tensors[key].shape)}, not {wanted}")


@torch.no_grad()
def restore_stack(
    states: Sequence[Mapping[str, Tensor]], stack: Mapping[str, Tensor], optimiser: torch.optim.Optimizer
) -> None:
    """Restore `stack_tensors` into a new stack and its optimiser."""
    for name, parameter in stack.items():
        parameter.copy_(torch.stack([one[WEIGHT + name] for one in states]))
        if f"{ADAM[0]}/{name}" in states[0]:
            moments = {key: torch.stack([one[f"{key}/{name}"] for one in states]) for key in ADAM}
            moments["step"] = moments["step"][0]
            optimiser.state[parameter] = {key: one.to(parameter.device) for key, one in moments.items()}


def random_tensors(order: torch.Generator) -> dict[str, Tensor]:
    """Return the states of torch's generators and of the batch sampler's."""
    found = {GLOBAL: torch.get_rng_state(), ORDER: order.get_state()}
    return found | {CUDA: torch.cuda.get_rng_state()} if torch.cuda.is_available() else found


def restore_random(tensors: Mapping[str, Tensor], order: torch.Generator) -> None:
    """Restore `random_tensors`."""
    torch.set_rng_state(tensors[GLOBAL])
    order.set_state(tensors[ORDER])
    if CUDA in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors[CUDA])


def write_state(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Write a state atomically, replacing the previous one.

    Args:
        path: the file; its folder is made.
        tensors: on the CPU.
        about: anything that JSON holds.
    """
    sweep(path.parent, path.name)  # of a run that was killed meanwhile
    with atomic_file(path) as work:
        save_file(dict(tensors), work, metadata={_ABOUT: json.dumps(about)})


def read_state(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Read the tensors and metadata of `write_state`; None if there is no such file.

    Raises:
        DataError: the file is damaged.
    """
    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            about = codec.loads((file.metadata() or {})[_ABOUT])
            if not isinstance(about, dict):
                raise ValueError("no object")
            return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise DataError(f"{path} cannot be read: delete it, and the run begins anew.") from error


@contextlib.contextmanager
def restoring(path: Path) -> Iterator[None]:
    """Tell that a state does not fit its model, wherever the block finds out.

    Raises:
        DataError: a tensor is missing, or has another shape or type.
    """
    try:
        yield
    except (KeyError, RuntimeError, TypeError, IndexError) as error:
        told = one_line(error)[:120]
        raise DataError(f"{path} does not fit its run ({told}): delete it, and the run begins anew.") from error
