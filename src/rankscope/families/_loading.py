"""Modules from local folders: safetensors only, never remote code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn


def load_module(folder: Path, dense_class: Any, auto_class: str, dtype: torch.dtype) -> nn.Module:
    """Load ``dense_class`` from ``folder``, or for a compressed folder the class its config is registered with.

    Args:
        folder: a local checkpoint folder.
        dense_class: the transformers class of the family.
        auto_class: name of the transformers Auto class that compressed configs of the family are registered with.
        dtype: number format of the module.
    """
    import transformers

    compressed = str(json.loads((folder / "config.json").read_text())["model_type"]).startswith("rankscope-")
    loader = getattr(transformers, auto_class) if compressed else dense_class
    major, minor = (int(part) for part in transformers.__version__.split(".")[:2])
    # The argument was renamed in transformers 4.56; the old name warns in the releases after it.
    key = "dtype" if (major, minor) >= (4, 56) else "torch_dtype"
    module = loader.from_pretrained(str(folder), use_safetensors=True, local_files_only=True, **{key: dtype})
    module.eval()
    return module
