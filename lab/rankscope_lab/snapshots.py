"""The state of a training that is not finished, in one safetensors file: weights, optimiser, and what is said of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from rankscope.errors import DataError
from rankscope.io.atomic import atomic_file

ADAM = ("exp_avg", "exp_avg_sq", "step")
"""What Adam and AdamW keep per parameter."""
WEIGHT, BUFFER = "weight/", "buffer/"
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
    """Put `training_tensors` back.

    Raises:
        KeyError: a tensor is missing: they are of another model.
    """
    stored = model.state_dict()
    for name, parameter in model.named_parameters():
        parameter.copy_(tensors[WEIGHT + name])
        found = {key: tensors[f"{key}/{name}"] for key in ADAM if f"{key}/{name}" in tensors}
        if found:
            optimiser.state[parameter] = {key: one.to(parameter.device, copy=True) for key, one in found.items()}
        del stored[name]
    for name, buffer in stored.items():
        buffer.copy_(tensors[BUFFER + name])


def write_state(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Write in place of what was there before, in one step.

    Args:
        path: the file; its folder is made.
        tensors: on the CPU.
        about: anything that JSON holds.
    """
    for half in path.parent.glob(f".{path.name}.*"):  # of a run that was killed meanwhile
        half.unlink()
    with atomic_file(path) as work:
        save_file(dict(tensors), work, metadata={_ABOUT: json.dumps(about)})


def read_state(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """What `write_state` wrote; none where there is no such file.

    Raises:
        DataError: the file is damaged.
    """
    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {})[_ABOUT])
            return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, KeyError, json.JSONDecodeError) as error:
        raise DataError(f"{path} cannot be read: delete it, and the run begins anew.") from error
