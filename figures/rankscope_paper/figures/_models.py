"""Which checkpoints a recipe measures where none is named, and how captions name them."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.checkpoints import Checkpoint, describe, list_bundled, list_packaged, open_checkpoint
from rankscope.errors import DataError
from rankscope_paper.figures._record import Settings

TEXT = "google-t5/t5-base"


def bundled() -> tuple[str, ...]:
    """Every checkpoint that this installation carries, the quantised and the continuous reference first."""
    names = list_bundled()
    return tuple(sorted(names, key=lambda name: (name not in REFERENCE, name)))


def at_hand() -> tuple[str, ...]:
    """Every checkpoint that this installation and the packages beside it carry."""
    return (*bundled(), *list_packaged())


REFERENCE = ("bundled", "bundled-bolt")
"""Chronos-T5 and Chronos-Bolt, trained by this project."""


def chronos() -> tuple[str, ...]:
    """The reference of a quantised vocabulary."""
    return ("bundled",)


def bolt() -> tuple[str, ...]:
    """The reference of a continuous embedding of patches."""
    return ("bundled-bolt",)


def both() -> tuple[str, ...]:
    """One reference of each kind of embedding."""
    return REFERENCE


def text() -> tuple[str, ...]:
    """A text model of T5's layout.

    Raises:
        DataError: this installation carries none.
    """
    for name in list_bundled():
        if describe(name).family.modality == "text":
            return (name,)
    raise DataError(f"no text model is bundled here: name one with --model, e.g. {TEXT}.")


def text_and_both() -> tuple[str, ...]:
    """A text model, then the two references."""
    return (*text(), *REFERENCE)


def opened(settings: Settings, default: Sequence[str]) -> list[Checkpoint]:
    """Open the models of the settings, or the default ones."""
    return [open_checkpoint(name) for name in settings.models or default]


def described(checkpoint: Checkpoint) -> str:
    """Name a checkpoint in a caption: what it was opened by, its family, its size."""
    size = checkpoint.parameters
    count = f"{size / 1e6:.1f} million" if size >= 100_000 else f"{size:,}"
    return f"{checkpoint.source} ({checkpoint.family.title}, {count} parameters)"


def listed(checkpoints: Sequence[Checkpoint]) -> str:
    """Name several checkpoints in a caption."""
    return ", ".join(described(one) for one in checkpoints)
