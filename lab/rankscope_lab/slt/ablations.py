"""Ablations that separate the factors changed together in the published comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from rankscope.errors import OptionError, unknown_choice
from rankscope_lab.slt.models import DLINEAR, NBEATS, PATCHTST, SLT

SETTINGS, CHOICE, TIME, VALIDATED = "settings", "choice", "time", "validated"


@dataclass(frozen=True)
class Setting:
    """Model with or without instance normalisation."""

    model: str
    revin: bool = False

    def __str__(self) -> str:
        """Label used in tables."""
        return f"{self.model}+revin" if self.revin else self.model


Side = tuple[Setting, ...]
"""Settings whose errors are averaged seed by seed before they are compared: one, or two of a 2 × 2 comparison."""


@dataclass(frozen=True)
class Ablation:
    """Ablation.

    Attributes:
        title: what is asked.
        pairs: sides to compare, first less second: negative where the first is better.
        kind: ``settings``; ``choice`` (weights of the best validation less those of the last epoch, of each setting);
            ``validated`` (weights of the best validation on both sides, whatever the protocol); ``time`` (the first
            side's last epoch, less the second's latest after as much training time).
    """

    title: str
    pairs: tuple[tuple[Side, Side], ...]
    kind: str = SETTINGS

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Distinct settings that it compares."""
        return tuple(dict.fromkeys(one for pair in self.pairs for side in pair for one in side))


def _side(names: str) -> Side:
    return tuple(Setting(name) for name in names.split())


def _pairs(*names: tuple[str, str]) -> tuple[tuple[Side, Side], ...]:
    return tuple((_side(first), _side(second)) for first, second in names)


def _each(*names: str) -> tuple[tuple[Side, Side], ...]:
    return _pairs(*((name, name) for name in names))


SLT_ADDITIVE, PATCHTST_MULT = "slt-additive", "patchtst-mult"
TWO_BY_TWO = _pairs(
    (SLT, PATCHTST_MULT),
    (SLT_ADDITIVE, PATCHTST),
    (f"{SLT} {SLT_ADDITIVE}", f"{PATCHTST_MULT} {PATCHTST}"),  # blocks, over both kinds of positions
    (SLT, SLT_ADDITIVE),
    (PATCHTST_MULT, PATCHTST),
    (f"{SLT} {PATCHTST_MULT}", f"{SLT_ADDITIVE} {PATCHTST}"),  # positions, over both kinds of blocks
    (f"{SLT} {PATCHTST}", f"{SLT_ADDITIVE} {PATCHTST_MULT}"),  # half the interaction
)
ABLATIONS: Mapping[str, Ablation] = MappingProxyType(
    {
        "published": Ablation("As published: blocks and positions change at once", _pairs((SLT, PATCHTST))),
        "block-position": Ablation("Kind of blocks × kind of positions, one at a time", TWO_BY_TWO),
        "block-position-validated": Ablation(
            "Kind of blocks × kind of positions, weights of the best validation", TWO_BY_TWO, VALIDATED
        ),
        "place": Ablation(
            "Attention on top, in the middle, at the bottom", _pairs((SLT, "slt-middle"), (SLT, "slt-bottom"))
        ),
        "attention": Ablation(
            "Is attention needed: the head mixes all patches, too",
            _pairs((SLT, "projections"), (SLT, "head"), ("head", DLINEAR)),
        ),
        "offset": Ablation("Positions multiply by weight, or by 1 + weight", _pairs((SLT, "slt-offset"))),
        "revin": Ablation(
            "With instance normalisation and without",
            (
                *(((Setting(model, True),), (Setting(model),)) for model in (SLT, PATCHTST, NBEATS, DLINEAR)),
                ((Setting(SLT, True),), (Setting(PATCHTST, True),)),
                *(((Setting(model, True),), (Setting(DLINEAR, True),)) for model in (SLT, PATCHTST, NBEATS)),
            ),
        ),
        "choice": Ablation("Weights of the best validation less those of the last epoch", _each(SLT, PATCHTST), CHOICE),
        "validated": Ablation(
            "Weights of the best validation on both sides",
            _pairs((SLT, PATCHTST), (SLT, DLINEAR), (PATCHTST, DLINEAR)),
            VALIDATED,
        ),
        "floor": Ablation("Against two linear maps", _pairs((SLT, DLINEAR), (PATCHTST, DLINEAR))),
        "time": Ablation("Equal training time in place of equal epochs", _pairs((SLT, PATCHTST)), TIME),
    }
)


def ablation(name: str) -> Ablation:
    """Return an ablation by name.

    Raises:
        OptionError: there is none.
    """
    if name not in ABLATIONS:
        raise OptionError(unknown_choice("ablation", name, ABLATIONS))
    return ABLATIONS[name]
