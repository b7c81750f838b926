"""Layers and Hugging Face model classes of low rank: matrices as two thin ones (eq. 20, 21), heads of any width."""

from __future__ import annotations

from typing import Any

__all__ = [
    "FactoredLinear",
    "HeadWidthAttention",
    "Int8Linear",
    "LowRankT5Config",
    "LowRankT5ForConditionalGeneration",
    "LowRankBoltConfig",
    "LowRankBoltModel",
    "LowRankBoltPipeline",
    "LowRankChronos2Config",
    "LowRankChronos2Model",
    "LowRankChronos2Pipeline",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    layers = {"FactoredLinear": "linear", "HeadWidthAttention": "heads", "Int8Linear": "linear"}
    module = layers.get(name, "models" if "T5" in name else "chronos")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
