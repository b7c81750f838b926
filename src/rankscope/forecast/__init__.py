"""Fast inference: drop-in pipelines with less time and memory than the stock ones; names are imported lazily."""

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
