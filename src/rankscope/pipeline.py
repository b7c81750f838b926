"""Forecasting pipelines of chronos-forecasting from any checkpoint that rankscope can open."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from rankscope.checkpoints import open_checkpoint
from rankscope.errors import CheckpointError, FamilyError, RankscopeError
from rankscope.placement import resolve_device, resolve_dtype

if TYPE_CHECKING:
    from chronos import BaseChronosPipeline


def load_pipeline(
    model: str | Path | None = None,
    *,
    device: str = "cpu",
    dtype: str | torch.dtype | None = None,
    revision: str | None = None,
) -> BaseChronosPipeline:
    """Load a forecasting pipeline: stock checkpoints and compressed ones alike.

    The checkpoint is opened first, so that pickles, damaged files and configs that disagree with their weights
    are refused with one clear line. The pipeline is what `BaseChronosPipeline.from_pretrained` returns.

    Args:
        model: a bundled name, a local folder or a hub id; the bundled default without one.
        device: ``cpu``, ``cuda`` (or ``cuda:N``) or ``auto``.
        dtype: number format to compute in; the one that the config names by default.
        revision: branch, tag or commit of a hub model.

    Raises:
        CheckpointError: there is no such model, or it cannot be read.
        FamilyError: the model forecasts no series.
        OptionError: an unknown device or dtype.
    """
    target, kind = resolve_device(device), resolve_dtype(dtype)
    checkpoint = open_checkpoint(model, revision=revision)
    if not checkpoint.family.forecastable:
        raise FamilyError(
            f"{checkpoint.source} is a {checkpoint.family.title} model, which forecasts no series: "
            "load a Chronos checkpoint, e.g. the bundled one."
        )
    from chronos import BaseChronosPipeline

    try:
        pipeline = BaseChronosPipeline.from_pretrained(
            str(checkpoint.folder), device_map=target, dtype=kind if kind is not None else "auto"
        )
    except RankscopeError:
        raise
    except (OSError, ValueError, TypeError, KeyError, AssertionError, RuntimeError, AttributeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CheckpointError(f"{checkpoint.source}: chronos-forecasting cannot load it: {reason}") from error
    pipeline.inner_model.eval()
    return pipeline
