"""What the published comparison changes at once, taken apart: which runs, and which of them are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from rankscope.errors import OptionError, unknown_choice
from rankscope.lab.slt.models import DLINEAR, PATCHTST, SLT

SETTINGS, CHOICE, TIME = "settings", "choice", "time"


@dataclass(frozen=True)
class Setting:
    """A model, normalised or not."""

    model: str
    revin: bool = False

    def __str__(self) -> str:
        """As tables write it."""
        return f"{self.model}+revin" if self.revin else self.model


@dataclass(frozen=True)
class Ablation:
    """One question to the benchmark.

    Attributes:
        title: what is asked.
        pairs: settings to compare, first less second: negative where the first is better.
        kind: ``settings``; ``choice`` (weights of the best validation less those of the last epoch, of each setting);
            ``time`` (the first setting's last epoch, less the second's latest after as much training time).
    """

    title: str
    pairs: tuple[tuple[Setting, Setting], ...]
    kind: str = SETTINGS


def _pairs(*names: tuple[str, str]) -> tuple[tuple[Setting, Setting], ...]:
    return tuple((Setting(first), Setting(second)) for first, second in names)


def _each(*names: str) -> tuple[tuple[Setting, Setting], ...]:
    return _pairs(*((name, name) for name in names))


SLT_ADDITIVE, PATCHTST_MULT = "slt-additive", "patchtst-mult"
ABLATIONS: Mapping[str, Ablation] = MappingProxyType(
    {
        "published": Ablation("As published: blocks and positions change at once", _pairs((SLT, PATCHTST))),
        "block-position": Ablation(
            "Kind of blocks × kind of positions, one at a time",
            _pairs(
                (SLT, PATCHTST_MULT),
                (SLT_ADDITIVE, PATCHTST),
                (SLT, SLT_ADDITIVE),
                (PATCHTST_MULT, PATCHTST),
            ),
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
                *((Setting(model, True), Setting(model)) for model in (SLT, PATCHTST)),
                (Setting(SLT, True), Setting(PATCHTST, True)),
            ),
        ),
        "choice": Ablation("Weights of the best validation less those of the last epoch", _each(SLT, PATCHTST), CHOICE),
        "time": Ablation("Equal training time in place of equal epochs", _pairs((SLT, PATCHTST)), TIME),
    }
)


def ablation(name: str) -> Ablation:
    """The ablation of a name.

    Raises:
        OptionError: there is none.
    """
    if name not in ABLATIONS:
        raise OptionError(unknown_choice("ablation", name, ABLATIONS))
    return ABLATIONS[name]
