"""Layers and Hugging Face model classes of low rank: matrices as two thin ones (eq. 20, 21), heads of any width."""

from __future__ import annotations

from rankscope.lazy import attach

_HOMES = {
    "FactoredLinear": ".linear",
    "HeadWidthAttention": ".heads",
    "Int8Linear": ".linear",
    "LowRankT5Config": ".models",
    "LowRankT5ForConditionalGeneration": ".models",
    "LowRankBoltConfig": ".chronos",
    "LowRankBoltModel": ".chronos",
    "LowRankBoltPipeline": ".chronos",
    "LowRankChronos2Config": ".chronos",
    "LowRankChronos2Model": ".chronos",
    "LowRankChronos2Pipeline": ".chronos",
}

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

__getattr__, __dir__ = attach(__name__, _HOMES)
