"""Load chronos-forecasting pipelines from stock and compressed checkpoints."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.choices import DTYPES, RUNTIMES
from rankscope.engine.device import computing_dtype, resolve_device, resolve_dtype
from rankscope.errors import CheckpointError, FamilyError, OptionError, RankscopeError, unknown_choice
from rankscope.families import Family

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
    """Load a forecasting pipeline from a stock or compressed checkpoint.

    The checkpoint is validated first: pickles, damaged files and configs that do not match the weights are rejected.
    Returns the result of `BaseChronosPipeline.from_pretrained` or, with another runtime, a drop-in replacement that
    produces the same forecasts in less time and memory, up to rounding.

    Args:
        model: an open checkpoint, a bundled name, a local folder or a hub id (default: the bundled model).
        device: ``cpu``, ``cuda`` (or ``cuda:N``) or ``auto``.
        dtype: compute dtype (default: that of the checkpoint, bfloat16 for the bundled models; float32 on a CPU that
            has no instructions for it, see `rankscope.engine.device.computing_dtype`).
        revision: branch, tag or commit of a hub model.
        runtime: ``stock``; ``fast`` for `rankscope.forecast`, with the same greedy forecasts and quantiles in float32
            (half precision rounds otherwise), and sample paths from the same distribution but other random numbers;
            ``auto`` for ``fast`` on a CPU if the family supports it, else ``stock``.

    Raises:
        CheckpointError: no such model, unreadable files, or weights outside the range of the dtype.
        FamilyError: not a forecasting model, or not supported by ``fast``.
        OptionError: an unknown device, dtype or runtime.
    """
    target, kind = resolve_device(device), resolve_dtype(dtype)
    if runtime not in RUNTIMES:
        raise OptionError(unknown_choice("runtime", runtime, RUNTIMES))
    checkpoint = open_checkpoint(model, revision=revision)
    if not checkpoint.family.forecastable:
        raise FamilyError(
            f"{checkpoint.source} is a {checkpoint.family.title} model, which rankscope cannot forecast with: "
            "load a Chronos checkpoint, e.g. the bundled one."
        )
    from chronos import BaseChronosPipeline

    try:
        pipeline = BaseChronosPipeline.from_pretrained(
            str(checkpoint.folder), device_map=target, dtype=kind or _default_dtype(checkpoint, target)
        )
    except RankscopeError:
        raise
    except (OSError, ValueError, TypeError, KeyError, AssertionError, RuntimeError, AttributeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CheckpointError(f"{checkpoint.source}: chronos-forecasting cannot load it: {reason}") from error
    module = pipeline.inner_model.eval()
    _check_range(module, checkpoint.source)
    if resolve_runtime(runtime, checkpoint.family, target) == "stock":
        return pipeline
    from rankscope.forecast.fast import make_fast

    own_weights(module, checkpoint)
    return make_fast(pipeline)


def _default_dtype(checkpoint: Checkpoint, device: str) -> torch.dtype | str:
    """``auto``, which is the format that the config names, or else that of the weights; or what is computed instead."""
    named = checkpoint.config.get("dtype") or checkpoint.config.get("torch_dtype")
    stored = (resolve_dtype(named) if named in DTYPES else None) or checkpoint.dtype
    computed = computing_dtype(device, stored)
    return "auto" if computed == stored else computed


def resolve_runtime(runtime: str, family: Family, device: str) -> str:
    """Resolve ``auto`` to ``fast`` on a CPU if the family supports it, else ``stock``; others stay as they are.

    The tests do not run ``fast`` on any other device.
    """
    if runtime != "auto":
        return runtime
    return "fast" if family.fast and device == "cpu" else "stock"


def own_weights(module: nn.Module, checkpoint: Checkpoint) -> None:
    """Replace memory-mapped tensors of a module by copies read into memory.

    A mapped file stays resident as long as any tensor refers to it. The map itself is not read, so no weight is in
    memory twice, even when the runtime concatenates several.

    Args:
        module: module loaded from the checkpoint, on a CPU.
        checkpoint: source of the weights.
    """
    for name, tensor in chain(module.named_parameters(), module.named_buffers()):
        info, kind = checkpoint.index.get(name), (tensor.dtype, tuple(tensor.shape))
        if info is not None and tensor.device.type == "cpu" and kind == (info.dtype, info.shape):
            tensor.data = checkpoint.raw(name)


def _check_range(module: nn.Module, source: str) -> None:
    """Check that no weight overflowed in float16.

    Raises:
        CheckpointError: a weight is infinite.
    """
    if module.dtype != torch.float16:
        return
    for name, tensor in chain(module.named_parameters(), module.named_buffers()):  # scales of int8 stay in bfloat16
        if tensor.dtype in (torch.float16, torch.bfloat16) and not bool(tensor.half().isfinite().all()):
            raise CheckpointError(f"{source}: {name} exceeds the float16 range (65504); use bfloat16 or float32.")
