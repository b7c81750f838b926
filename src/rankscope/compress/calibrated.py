"""The moments that a method needs: given, read from a file, or measured on a set that is named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rankscope.checkpoints import Checkpoint
from rankscope.compress.calibration import Calibration, CalibrationSet, calibrate, is_saved, load_calibration, named_set
from rankscope.compress.calibration.named import lengths, with_partners
from rankscope.compress.methods import METHODS
from rankscope.engine.progress import Progress
from rankscope.errors import OptionError
from rankscope.families import Site

__all__ = ["Source", "calibration_for", "lengths", "needs_calibration"]

Source = Calibration | CalibrationSet | str | Path


def needs_calibration(method: str) -> bool:
    """Whether a method looks at the inputs of the layers."""
    return method not in METHODS or METHODS[method].calibrated


def calibration_for(
    checkpoint: Checkpoint,
    sites: Sequence[Site],
    source: Source | None,
    *,
    decoder: str | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Calibration:
    """Return moments of the inputs of the sites, and of what their partners read.

    Args:
        checkpoint: the model.
        sites: matrices that will be cut.
        source: moments, a file of them (told by its content), a calibration set or its name as
            `rankscope.compress.calibration.named_set` takes it; the default set without.
        decoder: what the decoder reads, ``teacher`` by default; given moments have to have it.
        seed: of a set that is named, and of sample paths.
        device: where the model runs.
        progress: told the number of series done.

    Raises:
        OptionError: the moments are another model's, another decoder's, or those of other sites.
        DataError: the set cannot be used.
    """
    if isinstance(source, (str, Path)) and is_saved(source):
        source = load_calibration(source)
    if isinstance(source, Calibration):
        source.check(checkpoint)
        found = source.settings.decoder
        if decoder is not None and decoder != found:
            raise OptionError(f"the calibration was made with decoder {found}, not {decoder}: leave decoder out.")
        return source
    series = source if isinstance(source, CalibrationSet) else named_set(checkpoint, source, seed=seed)
    watched = with_partners(checkpoint, sites)
    return calibrate(
        checkpoint, series, sites=watched, decoder=decoder or "teacher", seed=seed, device=device, progress=progress
    )
