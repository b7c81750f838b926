"""What a healing did."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from rankscope.errors import DataError
from rankscope.io import codec

FILE = "heal.json"


@dataclass(frozen=True)
class HealReport:
    """A healing: of what, by whom, how long, and how far from the teacher at its beginning and its end.

    Attributes:
        model: name the student was opened by.
        teacher: name the teacher was opened by.
        out: folder that was written.
        family: family of both.
        loss: ``token-kl`` (nats per token) or ``quantile-l1`` (deviations of the history).
        steps: optimiser steps.
        seconds: time of training, that before a stop included.
        first_loss: mean loss of the first log interval.
        last_loss: mean loss of the last one.
        parameters: numbers in the model.
        trained_parameters: those that were trained.
        options: every field of `HealConfig`.
        fingerprints: of the weights of ``student`` and ``teacher``.
        precision: ``fp32`` or ``bf16``.
        changes: what was lowered where a healing that had diverged went on.
        earlier: reports of the healings that the student had had before, the oldest first.
    """

    model: str
    teacher: str
    out: str
    family: str
    loss: str
    steps: int
    seconds: float
    first_loss: float
    last_loss: float
    parameters: int
    trained_parameters: int
    options: dict[str, Any]
    fingerprints: dict[str, str]
    precision: str
    changes: tuple[dict[str, Any], ...] = ()
    earlier: tuple[dict[str, Any], ...] = field(default=(), repr=False)

    SCHEMA: ClassVar = "rankscope/heal@1"


def read_report(folder: Path) -> HealReport | None:
    """Read the report in a healed folder; None where there is none that can be read."""
    with contextlib.suppress(DataError):
        return codec.read(HealReport, folder / FILE)
    return None
