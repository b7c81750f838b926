"""Compression of a checkpoint by any method."""

from __future__ import annotations

import time
from pathlib import Path

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.compress.apply import recast, write_folder
from rankscope.compress.calibration.sources import with_moments
from rankscope.compress.depth import drop_layers
from rankscope.compress.joint_stream import compress_joint_stream, suited
from rankscope.compress.options import DEPTH, JOINT_STREAM, STREAM, CompressOptions
from rankscope.compress.prepare import prepare
from rankscope.compress.report import CompressReport
from rankscope.compress.slicing import slice_checkpoint
from rankscope.engine import Progress
from rankscope.errors import OptionError
from rankscope.io.atomic import refuse_existing


def compress(
    checkpoint: Checkpoint | str | Path | None = None,
    options: CompressOptions | None = None,
    *,
    out: str | Path,
    force: bool = False,
    progress: Progress | None = None,
) -> CompressReport:
    """Write a smaller checkpoint: of fewer ranks, narrower heads, feed-forward blocks and streams, or fewer layers.

    The folder holds ``config.json``, ``model.safetensors``, the source's ``generation_config.json`` and tokenizer,
    ``compress.json``, the report, ``recipe.yaml`` and a model card. It appears whole or not at all. Matrices are read
    twice, one per worker at a time, once for their singular values and once for their factors; a module is built for
    calibration alone.

    Args:
        checkpoint: an open checkpoint, or what `open_checkpoint` takes.
        options: which matrices, to which size, and how.
        out: folder to write.
        force: replace ``out`` if it exists.
        progress: called with (done, total, what).

    Raises:
        OptionError: there is no size, or it is out of reach.
        OutputError: ``out`` exists, or cannot be written.
        CheckpointError: the source cannot be read.
        DataError: the calibration set cannot be used, or a row cannot be stored in int8.
        FamilyError: the source has no low-rank model class, or the method does not suit it.
    """
    begin = time.perf_counter()
    how = CompressOptions() if options is None else options
    if not isinstance(how, CompressOptions):
        raise OptionError(f"options must be CompressOptions(ratio=0.3, …), not a {type(how).__name__}.")
    recasts = how.method in (None, "svd") and (how.storage is not None or how.dtype is not None)
    if not how.sizes and not recasts:
        raise OptionError(
            "no size is given: give ratio (--ratio 0.3 of all parameters), a budget (--parameters, --bytes or "
            "--cache-bytes), the paper's eps (--eps 0.05) or --attention-ratio, a loss to hold (compress_to_loss, "
            "--max-loss), or number formats alone, without a method (--storage int8, --dtype bfloat16)."
        )
    refuse_existing(out, force)
    source = open_checkpoint(checkpoint)
    if not how.sizes:
        return recast(source, how, out=out, force=force, progress=progress)
    how = with_moments(how)
    how = suited(source, how) or how
    whole = {STREAM: slice_checkpoint, JOINT_STREAM: compress_joint_stream, DEPTH: drop_layers}.get(
        how.completed().method
    )
    if whole is not None:
        return whole(source, how, out=out, force=force, progress=progress)
    prepared = prepare(source, how, progress=progress)
    plan = prepared.by_eps(how.eps or 0.0) if how.limit is None else prepared.by_budget(how.limit)
    return write_folder(prepared, plan, out, force=force, begin=begin)
