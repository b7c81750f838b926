"""Modules from local folders (safetensors only, never remote code), their parts, and small ones back to folders."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rankscope.errors import CheckpointError


def load_module(folder: Path, dense_class: Any, dtype: torch.dtype, **settings: Any) -> Any:
    """Load ``dense_class`` from ``folder``, or its subclass for compressed folders.

    Args:
        folder: a local checkpoint folder, which may hold a head that the class has not.
        dense_class: the transformers class of the family.
        dtype: number format of the module.
        settings: further arguments of the class.

    Raises:
        CheckpointError: the folder is compressed and no class that reads it is registered; or it lacks weights of the
            model, which transformers would draw at random.
    """
    import transformers

    model_type = str(json.loads((folder / "config.json").read_text()).get("model_type"))
    loader = _compressed_class(folder, dense_class) if model_type.startswith("rankscope-") else dense_class
    major, minor = (int(part) for part in transformers.__version__.split(".")[:2])
    # The argument was renamed in transformers 4.56; the old name warns in the releases after it.
    key = "dtype" if (major, minor) >= (4, 56) else "torch_dtype"
    how = {"use_safetensors": True, "local_files_only": True, "output_loading_info": True, key: dtype}
    with _quiet():
        module, info = loader.from_pretrained(str(folder), **how, **settings)
    missing = sorted(str(name) for name in info["missing_keys"])
    if missing:
        raise CheckpointError(
            f"{folder} has no {missing[0]}{f' and {len(missing) - 1} more' if len(missing) > 1 else ''}, which "
            f"{type(module).__name__} needs: use a checkpoint that was saved whole."
        )
    return module.eval()


def whole_model(home: str, name: str) -> Callable[[Path, torch.dtype], nn.Module]:
    """Return what loads a model of the class ``home.name``, which is imported then."""

    def build(folder: Path, dtype: torch.dtype) -> nn.Module:
        module: nn.Module = load_module(folder, getattr(importlib.import_module(home), name), dtype)
        return module

    return build


def without_head(name: str, **settings: Any) -> Callable[[Path, torch.dtype], nn.Module]:
    """Return what loads a checkpoint into the class of transformers that has no head; settings as of `load_module`."""

    def build(folder: Path, dtype: torch.dtype) -> nn.Module:
        module: nn.Module = load_module(
            folder, getattr(importlib.import_module("transformers"), name), dtype, **settings
        )
        return module

    return build


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from listing the weights of a head that is left out on purpose, and from drawing bars."""
    from transformers.utils import logging

    before, shown = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if shown:
            logging.enable_progress_bar()


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


class _Enough(Exception):
    """Ends a forward pass once the part has answered."""


def output_of(module: nn.Module, part: nn.Module, inputs: Mapping[str, Any]) -> Tensor:
    """Run a module until its ``part`` has answered for the first time, and return a copy of that answer.

    The module prepares the inputs as it always does (scaling, patches, padding), so that what is embedded here is what
    the model embeds.
    """
    found: list[Tensor] = []

    def keep(_: nn.Module, args: tuple[Any, ...], answer: Any) -> None:
        # cloned: some models add positions to it in place
        found.append((answer[0] if isinstance(answer, tuple) else answer).detach().clone())
        raise _Enough

    handle = part.register_forward_hook(keep)
    try:
        with torch.no_grad():
            module(**inputs)
    except _Enough:
        pass
    finally:
        handle.remove()
    return found[0]


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
