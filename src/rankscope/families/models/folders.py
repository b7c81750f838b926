"""These modules as checkpoint folders: config.json and safetensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rankscope.errors import CheckpointError


def write_module(module: nn.Module, config: Mapping[str, Any], folder: Path) -> None:
    """Write ``config.json`` and ``model.safetensors`` into a folder, in the module's number format."""
    from safetensors.torch import save_file

    tensors = {name: tensor.detach().contiguous() for name, tensor in module.state_dict().items()}
    (folder / "config.json").write_text(json.dumps(dict(config), indent=2) + "\n")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def load_into(module: nn.Module, folder: Path, dtype: torch.dtype) -> nn.Module:
    """Fill a module from the safetensors files of a folder, which may hold more; evaluation mode.

    Raises:
        CheckpointError: a tensor of the module is missing.
    """
    from safetensors import safe_open

    wanted = set(module.state_dict())
    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as source:
            found.update({name: source.get_tensor(name) for name in wanted & set(source.keys())})
    missing = sorted(wanted - set(found))
    if missing:
        raise CheckpointError(f"{folder}: tensor {missing[0]} is missing; use the config.json saved with the weights.")
    module.load_state_dict(found)
    return module.to(dtype).eval()
