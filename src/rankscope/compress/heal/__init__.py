"""Heal a compressed checkpoint: distil it against its teacher on generated series; names are loaded when used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankscope.compress.heal.config import HealConfig, HealReport
    from rankscope.compress.heal.run import heal

_HOMES = {"heal": "run", "HealConfig": "config", "HealReport": "config"}

__all__ = ["heal", "HealConfig", "HealReport"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
