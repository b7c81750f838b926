"""What a trained model answers: with a channel set to its mean, and without the constant start of the outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

_BATCH = 32
"""Series at a time: what fitted in training fits here."""


@dataclass(frozen=True)
class Scores:
    """Answers of every position that is scored: that at step t predicts the bin at step t + 1.

    Attributes:
        nll: −log of the probability given to the bin that came.
        right: whether that bin was the likeliest.
    """

    nll: Float[Tensor, "series scored"]
    right: Float[Tensor, "series scored"]


@torch.inference_mode()
def position_scores(
    model: Callable[[Tensor], Tensor],
    inputs: Float[Tensor, "series time channels"],
    labels: Int[Tensor, "series time"],
) -> Scores:
    """Score a model's logits, position by position.

    Args:
        model: inputs → logits, batch × time × bins; in evaluation mode, on the device of the inputs.
        inputs: series.
        labels: bins.
    """
    nll, right = [], []
    for x, y in zip(inputs.split(_BATCH), labels.split(_BATCH), strict=True):
        logits, target = model(x)[:, :-1].float(), y[:, 1:]
        nll.append(F.cross_entropy(logits.transpose(1, 2), target, reduction="none").cpu())
        right.append((logits.argmax(-1) == target).cpu().float())
    return Scores(torch.cat(nll), torch.cat(right))


@dataclass(frozen=True)
class Masking:
    """Accuracy with all channels, and with one at 0.

    Attributes:
        none: nothing masked.
        masked: by channel.
    """

    none: float
    masked: list[float]


def mask_channels(
    model: Callable[[Tensor], Tensor],
    inputs: Float[Tensor, "series time channels"],
    labels: Int[Tensor, "series time"],
) -> Masking:
    """Set one channel after the other to 0, its mean, at all steps. Source: Lehtinen 2026, section 3.8."""
    masked = []
    for channel in range(inputs.shape[-1]):
        without = inputs.clone()
        without[..., channel] = 0
        masked.append(_mean(position_scores(model, without, labels).right))
    return Masking(_mean(position_scores(model, inputs, labels).right), masked)


@dataclass(frozen=True)
class Prefix:
    """Scores with and without the positions whose outcome is the constant start.

    Attributes:
        nll: over all scored positions, in nats.
        accuracy: the same.
        free_nll: without the constant ones.
        free_accuracy: the same.
    """

    nll: float
    accuracy: float
    free_nll: float
    free_accuracy: float


def without_prefix(scores: Scores, lead: int) -> Prefix:
    """Leave out the positions that predict one of the first ``lead`` steps; the first step is predicted by none."""
    nll, right = scores.nll, scores.right
    return Prefix(_mean(nll), _mean(right), _mean(nll[:, lead - 1 :]), _mean(right[:, lead - 1 :]))


def _mean(values: Tensor) -> float:
    return float(values.double().mean())
