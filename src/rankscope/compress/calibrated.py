"""The moments that a method needs: given, read from a file, or measured on a set that is named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rankscope.calibration import Calibration, CalibrationSet, calibrate, calibration_set, load_calibration
from rankscope.calibration.sets import DEFAULT
from rankscope.checkpoints import Checkpoint
from rankscope.compress.methods import METHODS
from rankscope.families import Site
from rankscope.progress import Progress

Source = Calibration | CalibrationSet | str | Path
SAVED = ".safetensors"
CONTEXT, HORIZON = 512, 64


def needs_calibration(method: str) -> bool:
    """Whether a method looks at the inputs of the layers."""
    return method not in METHODS or METHODS[method].calibrated


def calibration_for(
    checkpoint: Checkpoint,
    sites: Sequence[Site],
    source: Source | None,
    *,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Calibration:
    """Return moments of the inputs of the sites, and of what their partners read.

    Args:
        checkpoint: the model.
        sites: matrices that will be cut.
        source: moments, a file of them (``.safetensors``), a calibration set or its name; the default set without.
        seed: of a set that is named.
        device: where the model runs.
        progress: told the number of series done.

    Raises:
        OptionError: the moments are another model's, or those of other sites.
        DataError: the set cannot be used.
    """
    if isinstance(source, Calibration):
        source.check(checkpoint)
        return source
    if not isinstance(source, CalibrationSet) and source is not None and str(source).endswith(SAVED):
        saved = load_calibration(source)
        saved.check(checkpoint)
        return saved
    if isinstance(source, CalibrationSet):
        series = source
    else:
        context, horizon = lengths(checkpoint)
        series = calibration_set(source or DEFAULT, context=context, horizon=horizon, seed=seed)
    whole = {site.module.rpartition(".")[0] for site in sites}
    watched = tuple(site for site in checkpoint.sites(["all"]) if site.module.rpartition(".")[0] in whole)
    return calibrate(checkpoint, series, sites=watched, device=device, progress=progress)


def lengths(checkpoint: Checkpoint) -> tuple[int, int]:
    """Context and horizon to calibrate at: the model's own, the context no longer than 512."""
    inner = checkpoint.config.get("chronos_config") or {}
    context = min(int(inner.get("context_length", CONTEXT)), CONTEXT)
    return context, min(int(inner.get("prediction_length", HORIZON)), HORIZON)
