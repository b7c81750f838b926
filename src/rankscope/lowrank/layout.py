"""What ``config.json`` says about the compressed sites of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rankscope.errors import CheckpointError, FamilyError, unknown_choice

VERSION = 1
LAYOUTS = ("factored",)

MODEL_TYPES = {
    "rankscope-t5": ("rankscope.lowrank.t5", "LowRankT5Config"),
    "rankscope-bolt": ("rankscope.lowrank.bolt", "LowRankBoltConfig"),
    "rankscope-chronos2": ("rankscope.lowrank.chronos2", "LowRankChronos2Config"),
}
"""``model_type`` → module and name of the config class that builds it."""


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


def low_rank_config(config: Mapping[str, Any], family: str, ranks: Mapping[str, int], method: str) -> dict[str, Any]:
    """Return ``config`` rewritten for a checkpoint whose modules ``ranks`` are factored.

    Args:
        config: the source's ``config.json``; every field that is not about the class or the layout is kept.
        family: the base family's name, e.g. ``chronos-bolt``.
        ranks: module name (no ``.weight``) → stored rank.
        method: how the factors were found, e.g. ``svd``.

    Raises:
        FamilyError: no low-rank model class exists for ``family``.
    """
    if family not in TARGETS:
        raise FamilyError(unknown_choice("family", family, TARGETS, "These have a low-rank model class."))
    target = TARGETS[family]
    sites = {name: {"layout": "factored", "rank": int(rank)} for name, rank in ranks.items()}
    changed = {
        **config,
        "model_type": target.model_type,
        "architectures": [target.architecture],
        "rankscope": {"version": VERSION, "family": family, "method": method, "sites": sites},
    }
    if target.pipeline is not None:
        changed["chronos_pipeline_class"] = target.pipeline
    return changed


def factored_ranks(block: Mapping[str, Any] | None) -> dict[str, int]:
    """Read module name → rank out of a config's ``rankscope`` block; no block means nothing is factored.

    >>> factored_ranks({"version": 1, "sites": {"encoder.q": {"layout": "factored", "rank": 3}}})
    {'encoder.q': 3}

    Raises:
        CheckpointError: the block is from a later version, names an unknown layout or no positive rank.
    """
    if not block:
        return {}
    version = block.get("version", VERSION)
    if not isinstance(version, int) or version > VERSION:
        raise CheckpointError(f"config.json: rankscope.version {version!r} is newer than {VERSION}: update rankscope.")
    return {name: _rank(name, entry) for name, entry in block.get("sites", {}).items()}


def _rank(name: str, entry: Mapping[str, Any]) -> int:
    layout = entry.get("layout")
    if layout not in LAYOUTS:
        raise CheckpointError(f"config.json: site {name}: {unknown_choice('layout', layout, LAYOUTS)}")
    rank = entry.get("rank")
    if not isinstance(rank, int) or rank < 1:
        raise CheckpointError(f"config.json: site {name}: rank {rank!r} is not a whole number of at least 1.")
    return rank
