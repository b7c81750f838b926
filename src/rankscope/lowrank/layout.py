"""What ``config.json`` says about the sites of a checkpoint that are not stored as the stock model stores them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankscope.choices import Storage
from rankscope.errors import FamilyError
from rankscope.families import Family, Layout, compressible
from rankscope.families.layouts import VERSION


def low_rank_config(
    config: Mapping[str, Any], family: Family, layouts: Mapping[str, Layout], method: str, storage: Storage = "float"
) -> dict[str, Any]:
    """Return ``config`` rewritten for a checkpoint whose modules have ``layouts``.

    Args:
        config: the source's ``config.json``; every field that is not about the class or the layout is kept.
        family: the base family.
        layouts: module name (no ``.weight``) → how it is stored; all others are dense.
        method: how the factors or widths were found, e.g. ``svd`` or ``design``.
        storage: in which numbers linear layers are stored.

    Raises:
        FamilyError: no low-rank model class stores models of it.
    """
    target = family.low_rank
    if target is None:
        raise FamilyError(f"there is no low-rank class of {family.title} models: {compressible()} have one.")
    block: dict[str, Any] = {"version": VERSION, "family": family.name, "method": method}
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
