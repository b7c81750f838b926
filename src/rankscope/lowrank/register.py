"""Teach transformers' `AutoConfig` the compressed model types without importing transformers first."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

MODEL_TYPES = {
    "rankscope-t5": ("rankscope.lowrank.models", "LowRankT5Config"),
    "rankscope-bolt": ("rankscope.lowrank.chronos", "LowRankBoltConfig"),
    "rankscope-chronos2": ("rankscope.lowrank.chronos", "LowRankChronos2Config"),
}
"""``model_type`` → module and name of the config class that builds it."""

_AUTO_CONFIG = "transformers.models.auto.configuration_auto"


def register_model_types() -> None:
    """Register ``rankscope-*`` with `AutoConfig`: now if transformers is loaded, else as soon as it is.

    transformers takes seconds to import, so `import rankscope` must not pay for it. What is registered is a
    doorway whose ``from_dict`` imports the real config class, its model class and, where the stock loader
    needs one, its chronos pipeline class. `BaseChronosPipeline.from_pretrained` reads the config before it
    looks a pipeline up, so everything is in place in time.
    """
    loaded = sys.modules.get(_AUTO_CONFIG)
    if loaded is not None and hasattr(loaded, "AutoConfig"):
        _register(loaded)
    elif not any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterImport())


def _register(module: ModuleType) -> None:
    from transformers.configuration_utils import PretrainedConfig

    for model_type, (where, class_name) in MODEL_TYPES.items():
        doorway = _doorway(PretrainedConfig, model_type, where, class_name)
        module.AutoConfig.register(model_type, doorway, exist_ok=True)


def _doorway(base: type, model_type: str, where: str, class_name: str) -> type:
    """Make a stand-in, imported when it is used, for the config class ``where.class_name``."""

    def real() -> Any:
        return getattr(importlib.import_module(where), class_name)

    def from_dict(cls: type, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        return real().from_dict(config_dict, **kwargs)

    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        return real()(*args, **kwargs)

    body = {
        "__doc__": f"Stands for `{class_name}` until one is needed.",
        "__module__": __name__,
        "model_type": model_type,
        "from_dict": classmethod(from_dict),
        "__new__": new,
    }
    return type(class_name, (base,), body)


class _AfterImport(importlib.abc.MetaPathFinder):
    """Wait for one module of transformers, register when it has been executed, and step aside."""

    _asking = False

    # the path of a namespace package is iterable, but no Sequence
    def find_spec(
        self, fullname: str, path: Iterable[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _AUTO_CONFIG or self._asking:
            return None
        self._asking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._asking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Registering(spec.loader, self)
        return spec


class _Registering(importlib.abc.Loader):
    """Run another loader, then register."""

    def __init__(self, loader: Any, finder: _AfterImport) -> None:
        self._loader, self._finder = loader, finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        _register(module)
