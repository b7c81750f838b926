"""The fast forecaster: the stock pipelines' answers for less time and memory; names are loaded when used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankscope.forecast.fast import is_known, make_fast
    from rankscope.forecast.weights import own_weights

_HOMES = {"make_fast": "fast", "is_known": "fast", "own_weights": "weights"}

__all__ = ["is_known", "make_fast", "own_weights"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
