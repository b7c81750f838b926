"""The fast forecaster: the stock pipelines' answers for less time and memory; names are loaded when used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankscope.forecast.fast import is_known, make_fast

__all__ = ["is_known", "make_fast"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.fast"), name)
