"""What ``config.json`` says about the sites of a checkpoint that are not stored as the stock model stores them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rankscope.choices import Storage
from rankscope.errors import FamilyError, unknown_choice
from rankscope.families import Layout
from rankscope.families.layouts import VERSION


@dataclass(frozen=True)
class Target:
    """How a compressed checkpoint of one family introduces itself to transformers and chronos-forecasting."""

    model_type: str
    architecture: str
    pipeline: str | None


TARGETS = {
    "chronos-t5": Target("rankscope-t5", "LowRankT5ForConditionalGeneration", "ChronosPipeline"),
    "t5": Target("rankscope-t5", "LowRankT5ForConditionalGeneration", None),
    "chronos-bolt": Target("rankscope-bolt", "LowRankBoltModel", "LowRankBoltPipeline"),
    "chronos-2": Target("rankscope-chronos2", "LowRankChronos2Model", "LowRankChronos2Pipeline"),
}
"""Family name → what its compressed ``config.json`` declares."""


def low_rank_config(
    config: Mapping[str, Any], family: str, layouts: Mapping[str, Layout], method: str, storage: Storage = "float"
) -> dict[str, Any]:
    """Return ``config`` rewritten for a checkpoint whose modules have ``layouts``.

    Args:
        config: the source's ``config.json``; every field that is not about the class or the layout is kept.
        family: the base family's name, e.g. ``chronos-bolt``.
        layouts: module name (no ``.weight``) → how it is stored; all others are dense.
        method: how the factors or widths were found, e.g. ``svd`` or ``design``.
        storage: in which numbers linear layers are stored.

    Raises:
        FamilyError: no low-rank model class exists for ``family``.
    """
    if family not in TARGETS:
        raise FamilyError(unknown_choice("family", family, TARGETS, "These have a low-rank model class."))
    target = TARGETS[family]
    block: dict[str, Any] = {"version": VERSION, "family": family, "method": method}
    if storage != "float":
        block["storage"] = storage
    sites = {name: layout.to_json() for name, layout in layouts.items()}
    changed = {
        **config,
        "model_type": target.model_type,
        "architectures": [target.architecture],
        "rankscope": {**block, "sites": sites},
    }
    if target.pipeline is not None:
        changed["chronos_pipeline_class"] = target.pipeline
    return changed
