"""From the words of an option to the set and the matrices that one model is calibrated on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rankscope.checkpoints import Checkpoint
from rankscope.compress.calibration.sets import DEFAULT, CalibrationSet, calibration_set
from rankscope.compress.calibration.text import TEXT, text_set
from rankscope.errors import OptionError
from rankscope.families import Site

CONTEXT, HORIZON = 512, 64
"""Longest history that a model is calibrated at, and the values that follow where a config does not say."""


def named_set(
    checkpoint: Checkpoint,
    source: str | Path | None = None,
    *,
    seed: int = 0,
    count: int | None = None,
    probe: bool = False,
) -> CalibrationSet:
    """Make the set that ``source`` names, at the lengths of one model.

    Args:
        checkpoint: the model.
        source: of a model that forecasts, as `rankscope.compress.calibration.calibration_set` takes it,
            ``mixture:256`` by default; of a text model ``text:FILE`` or ``text:FILE:N``, see
            `rankscope.compress.calibration.text.text_set`.
        seed: of every random choice.
        count: windows of a text whose name does not say.
        probe: of a text, draw from the part that is not calibrated on.

    Raises:
        OptionError: the source is not one for this kind of model.
        DataError: the file cannot be used.
    """
    word = None if source is None else str(source)
    if checkpoint.family.forecastable:
        if word is not None and word.startswith(TEXT):
            raise OptionError(
                f"{checkpoint.source} reads series, and {word!r} is a text: try {DEFAULT}, or name a file of series."
            )
        context, horizon = lengths(checkpoint)
        return calibration_set(DEFAULT if word is None else word, context=context, horizon=horizon, seed=seed)
    if word is None or not word.startswith(TEXT):
        raise OptionError(
            f"{checkpoint.source} is a {checkpoint.family.title} model, which reads text: calibrate it on text:FILE "
            "(plain text, or token ids)."
        )
    return text_set(word, checkpoint, seed=seed, count=count, probe=probe)


def lengths(checkpoint: Checkpoint) -> tuple[int, int]:
    """Context and horizon to calibrate at: the model's own, the context no longer than 512."""
    family, config = checkpoint.family, checkpoint.config
    return min(family.context(config) or CONTEXT, CONTEXT), min(family.horizon(config) or HORIZON, HORIZON)


def with_partners(checkpoint: Checkpoint, sites: Sequence[Site]) -> tuple[Site, ...]:
    """The sites, and the other matrices of their attention or MLP: method ``joint`` looks at all four of an attention.

    In the order of computation.
    """
    whole = {site.module.rpartition(".")[0] for site in sites}
    return tuple(site for site in checkpoint.sites(["all"]) if site.module.rpartition(".")[0] in whole)
