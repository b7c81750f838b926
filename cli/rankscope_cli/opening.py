"""Opening the model that a verb measures, and saying what was guessed of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankscope_cli.exits import say

if TYPE_CHECKING:
    from rankscope.checkpoints import Checkpoint


def open_model(model: str | None, revision: str | None = None) -> Checkpoint:
    """Open a checkpoint; of a model that no family describes, say on stderr what was taken for what.

    Raises:
        RankscopeError: as `rankscope.checkpoints.open_checkpoint` says.
    """
    from rankscope.checkpoints import open_checkpoint

    checkpoint = open_checkpoint(model, revision=revision)
    if checkpoint.guesses:
        say(f"{checkpoint.source}: family not known, guessed from names and shapes: {'; '.join(checkpoint.guesses)}.")
    return checkpoint
