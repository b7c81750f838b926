"""Text models: windows of a text, and how well the model expects it (LPPL)."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from rankscope.checkpoints import Checkpoint
from rankscope.compress.calibration import CalibrationSet
from rankscope.compress.calibration.text import CONTEXT, HORIZON, calibration_windows, check_length, read_tokens
from rankscope.engine.progress import Progress, silent
from rankscope_eval.overlap import BATCH_SIZE, logits_of, teacher_passes

__all__ = ["calibration_windows", "log_perplexity", "read_tokens", "text_windows"]


def text_windows(
    tokens: Int[Tensor, " tokens"], count: int, *, context: int = CONTEXT, horizon: int = HORIZON
) -> CalibrationSet:
    """At most ``count`` windows from the second half of a text, side by side: those to be scored.

    Raises:
        DataError: the second half is shorter than one window.
    """
    half = tokens[len(tokens) // 2 :]
    size = context + horizon
    check_length(half, size)
    rows = half[: len(half) // size * size].reshape(-1, size)[:count].float()
    return CalibrationSet(f"text:{len(rows)}", rows[:, :context], rows[:, context:])


def log_perplexity(
    module: Any, checkpoint: Checkpoint, windows: CalibrationSet, progress: Progress | None = None
) -> float:
    """LPPL (Q9): mean cross-entropy in nats of the tokens that follow, given those in the encoder and before.

    Raises:
        DataError: a logit is not finite.
    """
    report = progress or silent
    total, count = 0.0, 0
    for done, batch in enumerate(teacher_passes(module, checkpoint.family, windows)):
        report(done * BATCH_SIZE, len(windows), "log-perplexity")
        losses = torch.nn.functional.cross_entropy(
            logits_of(module, batch)[batch.real], batch.labels[batch.real], reduction="sum"
        )
        total, count = total + float(losses.double()), count + int(batch.real.sum())
    report(len(windows), len(windows), "log-perplexity")
    return total / count
