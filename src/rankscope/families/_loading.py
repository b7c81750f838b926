"""Modules from local folders: safetensors only, never remote code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rankscope.errors import CheckpointError


def load_module(folder: Path, dense_class: Any, dtype: torch.dtype, **settings: Any) -> Any:
    """Load ``dense_class`` from ``folder``, or its subclass for compressed folders.

    Args:
        folder: a local checkpoint folder.
        dense_class: the transformers class of the family.
        dtype: number format of the module.
        settings: further arguments of the class.

    Raises:
        CheckpointError: the folder is compressed and no class that reads it is registered.
    """
    import transformers

    model_type = str(json.loads((folder / "config.json").read_text()).get("model_type"))
    loader = _compressed_class(folder, dense_class) if model_type.startswith("rankscope-") else dense_class
    major, minor = (int(part) for part in transformers.__version__.split(".")[:2])
    # The argument was renamed in transformers 4.56; the old name warns in the releases after it.
    key = "dtype" if (major, minor) >= (4, 56) else "torch_dtype"
    loaded = loader.from_pretrained(
        str(folder), use_safetensors=True, local_files_only=True, **{key: dtype}, **settings
    )
    (loaded[0] if isinstance(loaded, tuple) else loaded).eval()
    return loaded


def load_part(folder: Path, part_class: Any, dtype: torch.dtype, **settings: Any) -> nn.Module:
    """Load a model without the head that its checkpoint has, and make sure that nothing of it was left to chance.

    Args:
        folder: a local checkpoint folder.
        part_class: the transformers class of the model without a head.
        dtype: number format of the module.
        settings: further arguments of the class.

    Raises:
        CheckpointError: the checkpoint lacks weights of the model, which transformers would draw at random.
    """
    with _quiet():
        module: Any
        module, info = load_module(folder, part_class, dtype, output_loading_info=True, **settings)
    missing = sorted(str(name) for name in info["missing_keys"])
    if missing:
        raise CheckpointError(
            f"{folder} has no {missing[0]}{f' and {len(missing) - 1} more' if len(missing) > 1 else ''}, which "
            f"{type(module).__name__} needs: use a checkpoint that was saved whole."
        )
    return module


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from listing the weights of the head, which are left out on purpose."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


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
