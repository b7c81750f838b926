"""Compare outputs of a compressed model and its original: top tokens, quantiles and log-perplexity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankscope.checkpoints import Checkpoint
from rankscope.compress.calibration import CalibrationSet
from rankscope.compress.calibration.passes import pass_inputs
from rankscope.compress.calibration.text import CONTEXT, HORIZON, check_length
from rankscope.engine import Progress, silent
from rankscope.errors import DataError, FamilyError
from rankscope.families import Family

TOP = 10
BATCH_SIZE = 16


@dataclass(frozen=True)
class TeacherPass:
    """Teacher-forced batch.

    Attributes:
        inputs: keyword arguments of ``module.forward``.
        labels: next token at each position.
        real: mask of positions whose label is not padding.
    """

    inputs: dict[str, Tensor]
    labels: Int[Tensor, "series tokens"]
    real: Bool[Tensor, "series tokens"]


def teacher_passes(
    module: Any, family: Family, series: CalibrationSet, batch_size: int = BATCH_SIZE
) -> Iterator[TeacherPass]:
    """Yield teacher-forced batches.

    The decoder of Chronos-T5 reads the shifted history, as in the paper; that of a text model reads the tokens after
    those in the encoder.

    Raises:
        FamilyError: the model has no tokens.
    """
    if family.strategy == "continuous":
        raise FamilyError(f"a {family.title} model has no tokens to compare; compare its quantiles.")
    for start in range(0, len(series), batch_size):
        context, future = series.context[start : start + batch_size], series.future[start : start + batch_size]
        if family.strategy == "text":
            inputs = pass_inputs(module, family, context, future)
            labels = future.long().to(module.device)
            yield TeacherPass(inputs, labels, labels != int(module.config.pad_token_id or 0))
        else:
            inputs = family.model_inputs(module, context)
            yield TeacherPass(inputs, inputs["input_ids"], inputs["attention_mask"].bool())


@torch.no_grad()
def logits_of(module: Any, batch: TeacherPass) -> Float[Tensor, "series tokens vocabulary"]:
    """Compute the logits of a batch, in at least float32.

    Raises:
        DataError: a logit is not finite.
    """
    logits = module(**batch.inputs).logits
    if not bool(torch.isfinite(logits).all()):
        raise DataError("the model's logits hold NaN or Inf: it cannot be compared.")
    return logits.float() if logits.dtype.itemsize < 4 else logits


def top_tokens(
    module: Any,
    family: Family,
    series: CalibrationSet,
    *,
    batch_size: int = BATCH_SIZE,
    progress: Progress | None = None,
) -> Int[Tensor, "positions k"]:
    """Return the `TOP` likeliest next tokens at every non-padding position, concatenated over series.

    Raises:
        FamilyError: the model has no tokens.
        DataError: a logit is not finite.
    """
    report = progress or silent
    found = []
    for done, batch in enumerate(teacher_passes(module, family, series, batch_size)):
        report(done * batch_size, len(series), "likeliest tokens")
        logits = logits_of(module, batch)[batch.real]
        found.append(logits.topk(min(TOP, logits.shape[-1]), dim=-1).indices.to("cpu", torch.int32))
    report(len(series), len(series), "likeliest tokens")
    return torch.cat(found)


def mean_overlap(first: Int[Tensor, "positions k"], second: Int[Tensor, "positions k"]) -> float:
    """Compute the mean Jaccard overlap |A ∩ B| / |A ∪ B| of two sets of k distinct tokens over positions (Q8).

    >>> mean_overlap(torch.tensor([[1, 2], [3, 4]]), torch.tensor([[2, 1], [4, 5]])) == (1 + 1 / 3) / 2
    True

    Raises:
        DataError: there are no positions.
    """
    assert first.shape == second.shape
    if not len(first):
        raise DataError("no position is left to compare: every one is padding.")
    k = first.shape[1]
    total = 0.0
    for a, b in zip(first.split(1 << 16), second.split(1 << 16), strict=True):
        shared = (a[:, :, None] == b[:, None, :]).sum(dim=(1, 2)).double()
        total += float((shared / (2 * k - shared)).sum())
    return total / len(first)


def quantile_forecasts(
    pipeline: Any, context: Float[Tensor, "series time"], horizon: int, levels: Sequence[float], batch_size: int = 32
) -> Float[Tensor, "series horizon levels"]:
    """Return the quantile forecasts of a Chronos-Bolt or Chronos-2 pipeline.

    Raises:
        DataError: a forecast is not finite.
    """
    found = []
    for part in context.split(batch_size):
        rows = [row[int(torch.isfinite(row).int().argmax()) :] for row in part]  # histories are left-padded
        quantiles, _ = pipeline.predict_quantiles(rows, prediction_length=horizon, quantile_levels=list(levels))
        found += [row.float().cpu().reshape(horizon, len(levels)) for row in quantiles]
    stacked = torch.stack(found)
    if not bool(torch.isfinite(stacked).all()):
        raise DataError("the model's forecasts hold NaN or Inf: it cannot be compared.")
    return stacked


def quantile_distance(
    first: Float[Tensor, "series horizon levels"],
    second: Float[Tensor, "series horizon levels"],
    context: Float[Tensor, "series time"],
) -> float:
    """Compute the mean |q̃ − q| over series, horizon and levels, scaled by the standard deviation of each history.

    Series with a constant history are excluded.

    Raises:
        DataError: every history is constant.
    """
    values = context.double()
    mean = values.nanmean(dim=1, keepdim=True)
    deviation = (values - mean).square().nanmean(dim=1).sqrt()
    kept = deviation > 1e-9 * mean.squeeze(1).abs()
    if not bool(kept.any()):
        raise DataError("every history is constant: distances between forecasts have no unit.")
    distance = (first.double() - second.double()).abs().mean(dim=(1, 2))
    return float((distance[kept] / deviation[kept]).mean())


def text_windows(
    tokens: Int[Tensor, " tokens"], count: int, *, context: int = CONTEXT, horizon: int = HORIZON
) -> CalibrationSet:
    """Return at most ``count`` contiguous windows from the second half of a text, for scoring.

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
    """Compute the log-perplexity LPPL (Q9): mean cross-entropy of the next tokens, in nats.

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
