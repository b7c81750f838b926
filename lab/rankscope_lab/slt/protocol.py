"""How models are trained and scored: as the SLT benchmark was released, and as the field does."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.errors import OptionError, unknown_choice
from rankscope_lab.data.windows import FIFTHS, MONTHS

LAST, BEST = "last", "best"
"""Weights whose test score counts: after the last epoch, or after the one with the least validation MSE."""


@dataclass(frozen=True)
class Protocol:
    """Everything about a run but data, model and seed.

    Attributes:
        name: as options write it.
        about: one line.
        split: see `rankscope_lab.data.windows.split_rows`.
        reach_back: whether look-backs may begin in the part before.
        choice: `LAST` or `BEST`.
        first_columns: of wide tables only so many are used; table → number.
        epochs: through the training windows, in random order, the last smaller batch kept.
        batch: windows per step, all variables of each.
        learning_rate: of Adam, constant, without weight decay.
        clip: largest norm of the gradient.
    """

    name: str
    about: str
    split: str
    reach_back: bool
    choice: str
    first_columns: tuple[tuple[str, int], ...] = ()
    epochs: int = 10
    batch: int = 32
    learning_rate: float = 1e-4
    clip: float = 1.0


RELEASED = Protocol(
    "released",
    "rows 60/20/20, every part windowed alone, weights of the last epoch",
    FIFTHS,
    reach_back=False,
    choice=LAST,
    first_columns=(("traffic", 100),),
)
FIELD = Protocol(
    "field",
    "12/4/4 months (ETT) or rows 70/10/20, look-backs cross parts, weights of the best validation",
    MONTHS,
    reach_back=True,
    choice=BEST,
)
PROTOCOLS = {one.name: one for one in (RELEASED, FIELD)}


def protocol(name: str) -> Protocol:
    """The protocol of a name.

    Raises:
        OptionError: there is none.
    """
    if name not in PROTOCOLS:
        raise OptionError(unknown_choice("protocol", name, PROTOCOLS))
    return PROTOCOLS[name]
