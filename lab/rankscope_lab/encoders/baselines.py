"""What needs no transformer on ETTh1: repeat the current bin, count transitions, count bins."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from rankscope_lab.data.channels import BINS
from rankscope_lab.encoders.data import CellData

SMOOTHING = 0.5
"""Added to every count of a transition."""


@dataclass(frozen=True)
class BinBaselines:
    """Scores on the validation windows, at the positions that models are scored at.

    Attributes:
        current: accuracy of repeating the bin of the current step.
        transition: NLL (nats) of a table of transitions between bins, counted on the training windows.
        marginal: NLL of the frequencies of bins in the training windows.
        lowest: share of the labels in the lowest bin.
        lowest_two: share in the lowest two.
    """

    current: float
    transition: float
    marginal: float
    lowest: float
    lowest_two: float


def bin_baselines(data: CellData, bins: int = BINS) -> BinBaselines:
    """Score the baselines on a cell's data; the marginal is infinite where a bin of the validation never trained."""
    before, after = _steps(data.validation.targets)
    trained = transition_table(data.train.targets, bins)
    counts = torch.bincount(data.train.targets.flatten(), minlength=bins).double()
    frequency = counts / counts.sum()
    return BinBaselines(
        current=float((before == after).double().mean()),
        transition=float(-trained[before, after].log().mean()),
        marginal=float(-frequency[after].log().mean()),
        lowest=float((after == 0).double().mean()),
        lowest_two=float((after <= 1).double().mean()),
    )


def transition_table(labels: Int[Tensor, "series time"], bins: int = BINS) -> Tensor:
    """P(next bin | bin), float64, bins × bins: counts plus `SMOOTHING`, rows sum to 1."""
    before, after = _steps(labels)
    counts = torch.bincount(before * bins + after, minlength=bins * bins).double().reshape(bins, bins) + SMOOTHING
    return counts / counts.sum(1, keepdim=True)


def _steps(labels: Int[Tensor, "series time"]) -> tuple[Tensor, Tensor]:
    return labels[:, :-1].flatten(), labels[:, 1:].flatten()
