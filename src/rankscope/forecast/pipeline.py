"""Forecasting pipelines of chronos-forecasting from any checkpoint that rankscope can open."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.choices import RUNTIMES
from rankscope.engine.device import resolve_device, resolve_dtype
from rankscope.errors import CheckpointError, FamilyError, OptionError, RankscopeError, unknown_choice

if TYPE_CHECKING:
    from chronos import BaseChronosPipeline


def load_pipeline(
    model: Checkpoint | str | Path | None = None,
    *,
    device: str = "cpu",
    dtype: str | torch.dtype | None = None,
    revision: str | None = None,
    runtime: str = "stock",
) -> BaseChronosPipeline:
    """Load a forecasting pipeline: stock checkpoints and compressed ones alike.

    The checkpoint is opened first, so that pickles, damaged files and configs that disagree with their weights
    are refused with one clear line. The pipeline is what `BaseChronosPipeline.from_pretrained` returns or, with another
    runtime, one that is called as it is and gives the same forecasts for less time and memory.

    Args:
        model: an open checkpoint, a bundled name, a local folder or a hub id; the bundled default without one.
        device: ``cpu``, ``cuda`` (or ``cuda:N``) or ``auto``.
        dtype: number format to compute in; the one that the config names by default.
        revision: branch, tag or commit of a hub model.
        runtime: ``stock``; ``fast`` for `rankscope.forecast`, whose greedy forecasts and quantiles are the stock ones
            and whose sample paths follow the same distribution from other random numbers; ``auto`` for ``fast`` where
            the family has it.

    Raises:
        CheckpointError: there is no such model, it cannot be read, or the number format cannot hold its weights.
        FamilyError: the model forecasts no series, or ``fast`` does not know it.
        OptionError: an unknown device, dtype or runtime.
    """
    target, kind = resolve_device(device), resolve_dtype(dtype)
    if runtime not in RUNTIMES:
        raise OptionError(unknown_choice("runtime", runtime, RUNTIMES))
    checkpoint = model if isinstance(model, Checkpoint) else open_checkpoint(model, revision=revision)
    if not checkpoint.family.forecastable:
        raise FamilyError(
            f"{checkpoint.source} is a {checkpoint.family.title} model, with which rankscope forecasts no series: "
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
    module = pipeline.inner_model.eval()
    _check_range(module, checkpoint.source)
    if runtime == "stock":
        return pipeline
    from rankscope.forecast import is_known, make_fast

    if runtime == "auto" and not is_known(pipeline):
        return pipeline
    own_weights(module, checkpoint)
    return make_fast(pipeline)


def own_weights(module: nn.Module, checkpoint: Checkpoint) -> None:
    """Replace the tensors of a module, which may be parts of a mapped file, by ones that were read into own memory.

    What a loader maps stays resident as long as one tensor refers to it. Nothing of the map is touched, so no weight is
    in memory twice, not even when the runtime lays several together.

    Args:
        module: loaded from the checkpoint, on a CPU.
        checkpoint: its files.
    """
    for name, tensor in chain(module.named_parameters(), module.named_buffers()):
        info, kind = checkpoint.index.get(name), (tensor.dtype, tuple(tensor.shape))
        if info is not None and tensor.device.type == "cpu" and kind == (info.dtype, info.shape):
            tensor.data = checkpoint.raw(name)


def _check_range(module: nn.Module, source: str) -> None:
    """Refuse float16 where weights became infinite in it.

    Raises:
        CheckpointError: one did.
    """
    for name, tensor in chain(module.named_parameters(), module.named_buffers()):
        if tensor.dtype == torch.float16 and not bool(tensor.isfinite().all()):
            raise CheckpointError(f"{source}: {name} holds numbers beyond float16 (65504): use bfloat16 or float32.")
