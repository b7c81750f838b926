"""Table of the model families: how each embeds (Table 1), where to get it, and which verbs take it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

from rankscope.families import FAMILIES, Family

if TYPE_CHECKING:
    import pandas as pd

VERBS = ("spectrum", "flow", "embed", "compress", "heal", "pretrain", "forecast", "standin")
"""Verbs that not every family takes."""


@dataclass(frozen=True)
class FamilyRow:
    """One family.

    Attributes:
        family: its name.
        title: its name in tables and figures.
        strategy: how its input becomes tokens: ``quantisation``, ``continuous`` or ``text``.
        patch_size: observations (or pixel values) per token of the published models; None where they differ.
        modality: what it reads.
        bundled: the trained checkpoint of it that this installation carries, or None.
        hub_ids: published checkpoints.
        verbs: those of `VERBS` that take it.
    """

    family: str
    title: str
    strategy: str
    patch_size: int | None
    modality: str
    bundled: str | None
    hub_ids: tuple[str, ...]
    verbs: tuple[str, ...]


@dataclass(frozen=True)
class FamiliesReport:
    """Every family that rankscope knows; any other model is measured by its structure."""

    rows: tuple[FamilyRow, ...]

    SCHEMA: ClassVar = "rankscope/families@1"
    KEYS: ClassVar = ("families=rows",)

    def to_frame(self) -> pd.DataFrame:
        """One row per family; lists are joined by spaces."""
        import pandas as pd

        rows = [{**asdict(row), "hub_ids": " ".join(row.hub_ids), "verbs": " ".join(row.verbs)} for row in self.rows]
        return pd.DataFrame(rows).astype({"patch_size": "Int64"})


def list_families(bundled: Collection[str]) -> FamiliesReport:
    """List every family with what works on it.

    Args:
        bundled: names of the checkpoints that this installation carries (`rankscope.checkpoints.list_bundled`).
    """
    return FamiliesReport(tuple(_row(family, bundled) for family in FAMILIES.values()))


def _row(family: Family, bundled: Collection[str]) -> FamilyRow:
    takes = {
        "flow": family.layered,
        "compress": family.low_rank is not None,
        "heal": family.healable,
        "pretrain": family.trainable,
        "forecast": family.forecastable,
        "standin": family.proxy,
    }
    return FamilyRow(
        family=family.name,
        title=family.title,
        strategy=family.strategy,
        patch_size=family.published_patch,
        modality=family.modality,
        bundled=family.stand_in if family.stand_in in bundled else None,
        hub_ids=family.hub_ids,
        verbs=tuple(verb for verb in VERBS if takes.get(verb, True)),
    )
