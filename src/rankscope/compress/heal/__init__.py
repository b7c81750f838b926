"""Heal a compressed checkpoint: distil it against its teacher on generated series; names are loaded when used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankscope.lazy import attach

if TYPE_CHECKING:
    from rankscope.compress.heal.config import HealConfig, HealReport
    from rankscope.compress.heal.run import heal

_HOMES = {"heal": ".run", "HealConfig": ".config", "HealReport": ".config"}

__all__ = ["heal", "HealConfig", "HealReport"]

__getattr__, __dir__ = attach(__name__, _HOMES)
