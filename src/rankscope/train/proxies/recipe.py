"""Recipe of a proxy model: architecture, data and training length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from rankscope.errors import OptionError, check_count

Batch = dict[str, Any]
Batches = Callable[[int, bool], Batch]
"""The batch of a step, drawn from what is learnt or (True) from what is held out."""


@dataclass(frozen=True)
class ProxyOptions:
    """User options; None uses the family's default.

    Attributes:
        steps: optimiser steps.
        batch_size: examples per step.
        learning_rate: peak learning rate.
        width: d_model.
        layers: layers of each stack.
        text: training text of a text model.
        vocabulary: vocabulary size of a text model.
        seed: random seed.
    """

    steps: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    width: int | None = None
    layers: int | None = None
    text: str | Path | None = None
    vocabulary: int = 4096
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "layers"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        if self.width is not None and (self.width < 16 or self.width % 16):
            raise OptionError(f"width must be a multiple of 16, got {self.width}.")
        if self.learning_rate is not None and not 0 < self.learning_rate < 1:
            raise OptionError(f"learning_rate must lie between 0 and 1, got {self.learning_rate:g}.")
        if not 0 <= self.seed < 2**63:
            raise OptionError(f"seed must lie in 0…{2**63 - 1}, got {self.seed}.")
        if not 512 <= self.vocabulary <= 65_536:
            raise OptionError(f"vocabulary must lie in 512…65536, got {self.vocabulary}.")


def save_pretrained(module: nn.Module, folder: Path) -> None:
    """Write a module of transformers by its own method."""
    of_transformers: Any = module
    of_transformers.save_pretrained(str(folder), safe_serialization=True)


@dataclass(frozen=True)
class Recipe:
    """Resolved recipe of a run.

    Attributes:
        model: freshly initialised module whose forward pass takes a batch and returns a ``loss``.
        batches: training and held-out batches.
        data: description of the data, for the model card.
        loss: description of the loss.
        notes: further lines of the model card, as (name, text).
        save: writes the module's folder.
        write: further files of the folder, such as a tokenizer.
    """

    model: nn.Module
    batches: Batches
    data: str
    loss: str
    notes: Sequence[tuple[str, str]] = ()
    save: Callable[[nn.Module, Path], None] = save_pretrained
    write: Callable[[Path], None] | None = None


@dataclass(frozen=True)
class ProxyModel:
    """Training of a small model of one family.

    Attributes:
        family: key of `rankscope.families.FAMILIES`.
        layout: the model in words, for the model card.
        published: what it is modelled on.
        make: makes the recipe; all random choices follow the options' seed.
        steps: optimiser steps.
        batch_size: examples per step.
        learning_rate: peak learning rate.
        weight_decay: of AdamW.
        reads_text: whether the options must name a text.
    """

    family: str
    layout: str
    published: str
    make: Callable[[ProxyOptions, int], Recipe]
    steps: int
    batch_size: int
    learning_rate: float
    weight_decay: float = 0.01
    reads_text: bool = False
