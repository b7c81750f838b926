"""Modules from local folders: safetensors only, never remote code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rankscope.errors import CheckpointError


def load_module(folder: Path, dense_class: Any, dtype: torch.dtype) -> nn.Module:
    """Load ``dense_class`` from ``folder``, or its subclass for compressed folders.

    Args:
        folder: a local checkpoint folder.
        dense_class: the transformers class of the family.
        dtype: number format of the module.

    Raises:
        CheckpointError: the folder is compressed and no class that reads it is registered.
    """
    import transformers

    model_type = str(json.loads((folder / "config.json").read_text()).get("model_type"))
    loader = _compressed_class(folder, dense_class) if model_type.startswith("rankscope-") else dense_class
    major, minor = (int(part) for part in transformers.__version__.split(".")[:2])
    # The argument was renamed in transformers 4.56; the old name warns in the releases after it.
    key = "dtype" if (major, minor) >= (4, 56) else "torch_dtype"
    module = loader.from_pretrained(str(folder), use_safetensors=True, local_files_only=True, **{key: dtype})
    module.eval()
    return module


def _compressed_class(folder: Path, dense_class: Any) -> Any:
    from transformers import AutoConfig

    # Reading the config imports the classes that belong to it.
    config_class = type(AutoConfig.from_pretrained(str(folder), local_files_only=True))
    for subclass in _subclasses(dense_class):
        if subclass.config_class is config_class:
            return subclass
    raise CheckpointError(f"{folder}: no class reads a {config_class.model_type} model; import rankscope first.")


def _subclasses(parent: Any) -> Iterator[Any]:
    for child in parent.__subclasses__():
        yield child
        yield from _subclasses(child)
