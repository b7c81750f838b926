"""Model families: one file per family, one frozen record each.

To add a family write ``families/<name>.py`` with a `Family` record and list it in `FAMILIES`. What families share is in
``record``, ``sites``, ``layers``, ``loading`` and ``series``; ``generic`` finds attention by ``structure`` where no
family matches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankscope.errors import CheckpointError, FamilyError, unknown_choice
from rankscope.families import (
    bert,
    chronos2,
    chronos_bolt,
    chronos_t5,
    informer,
    patchtsmixer,
    patchtst,
    t5,
    time_moe,
    timesfm,
    timesfm2_5,
    totem,
    vit,
    wavetoken,
)
from rankscope.families.record import Answers, Decoding, Family, LowRank, config_field
from rankscope.families.sites import SELECTORS, Site, select_sites
from rankscope.families.weight_layout import Factored, HeadWidth, Layout, Width, read_layouts

__all__ = [
    "Answers",
    "COMPRESSED",
    "FAMILIES",
    "SELECTORS",
    "Decoding",
    "Factored",
    "Family",
    "HeadWidth",
    "Layout",
    "LowRank",
    "Site",
    "Width",
    "compressible",
    "config_field",
    "family_of",
    "is_known",
    "read_layouts",
    "select_sites",
]

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        chronos_t5.FAMILY,
        chronos_bolt.FAMILY,
        chronos2.FAMILY,
        wavetoken.FAMILY,
        time_moe.FAMILY,
        totem.FAMILY,
        timesfm.FAMILY,
        timesfm2_5.FAMILY,
        patchtst.FAMILY,
        patchtsmixer.FAMILY,
        informer.FAMILY,
        informer.AUTOFORMER,
        t5.FAMILY,
        bert.FAMILY,
        vit.FAMILY,
    )
}
"""Every family that rankscope knows, by name."""

COMPRESSED: dict[str, tuple[str, ...]] = {
    model_type: tuple(name for name, one in FAMILIES.items() if one.low_rank and one.low_rank.model_type == model_type)
    for model_type in dict.fromkeys(one.low_rank.model_type for one in FAMILIES.values() if one.low_rank)
}
"""``model_type`` of compressed checkpoints and the families that each may hold."""


def family_of(config: Mapping[str, Any]) -> Family:
    """Find the family that a ``config.json`` describes; compressed checkpoints name theirs.

    Raises:
        FamilyError: no known family matches.
        CheckpointError: a compressed checkpoint names no family.
    """
    model_type = config.get("model_type")
    if isinstance(model_type, str) and model_type.startswith("rankscope-"):
        return _family_of_compressed(config, model_type)
    for family in FAMILIES.values():
        if family.matches(config):
            return family
    raise FamilyError(
        f"config.json describes no known model family (model_type {model_type!r}, architectures "
        f"{config.get('architectures')!r}): rankscope knows {', '.join(FAMILIES)}; add one in "
        "rankscope/families."
    )


def compressible() -> str:
    """Names of the families that can be compressed, for messages."""
    return ", ".join(name for name, one in FAMILIES.items() if one.low_rank)


def is_known(config: Mapping[str, Any]) -> bool:
    """Return True if a ``config.json`` describes a family of `FAMILIES`, or a compressed checkpoint."""
    compressed = str(config.get("model_type")).startswith("rankscope-")
    return compressed or any(family.matches(config) for family in FAMILIES.values())


def _family_of_compressed(config: Mapping[str, Any], model_type: str) -> Family:
    if model_type not in COMPRESSED:
        raise FamilyError(unknown_choice("config.json: model_type", model_type, COMPRESSED, "Update rankscope."))
    part = config.get("rankscope")
    name = part.get("family") if isinstance(part, Mapping) else None
    if name not in COMPRESSED[model_type]:
        raise CheckpointError(
            unknown_choice("config.json: rankscope.family", name, COMPRESSED[model_type], "Compress the model again.")
        )
    return FAMILIES[name]
