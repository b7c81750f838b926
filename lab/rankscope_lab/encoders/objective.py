"""What a run minimises, what it is scored by, and its learning rate."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from rankscope_lab.encoders.cell import MSE, Cell, Point
from rankscope_lab.encoders.data import Part

BATCH = 32
PEAK, FLOOR = 3e-4, 3e-6
WEIGHT_DECAY = 1e-4
CLIP = 1.0
EVERY = 20
"""Epochs between validations; one more comes after the first epoch."""
SCORED = 256
"""Series per batch of a validation."""


def learning_rate(epoch: int, epochs: int) -> float:
    """Of an epoch, counted from 0: a cosine from the peak to its hundredth, constant within an epoch."""
    return FLOOR + 0.5 * (PEAK - FLOOR) * (1 + math.cos(math.pi * epoch / epochs))


def validated(epoch: int, epochs: int) -> bool:
    """Whether a validation follows the ``epoch``-th epoch, counted from 1: the first, every 20th, the last."""
    return epoch == 1 or epoch % EVERY == 0 or epoch == epochs


def loss_of(
    outputs: Float[Tensor, "batch time outputs"], targets: Int[Tensor, "batch time"] | Float[Tensor, "batch time"]
) -> Float[Tensor, ""]:
    """Mean loss of what is said at step t about step t + 1: NLL of its bin, or squared error of its outcome."""
    said, came = outputs[:, :-1].float(), targets[:, 1:]
    if came.is_floating_point():
        return (said[..., 0] - came).square().mean()
    return F.cross_entropy(said.flatten(0, 1), came.flatten())


@torch.no_grad()
def score(model: nn.Module, part: Part, cell: Cell, epoch: int, train_loss: float) -> Point:
    """Validate: loss and accuracy (R² under MSE) over all positions of all series, in evaluation mode."""
    training = model.training
    model.eval()
    step = max(1, SCORED // max(1, cell.channels)) if cell.encoder in ("ci", "cat") else SCORED
    losses, right, count = 0.0, 0.0, 0
    for start in range(0, len(part.inputs), step):
        inputs, targets = part.inputs[start : start + step], part.targets[start : start + step]
        outputs = model(inputs)
        scored = len(inputs) * (inputs.shape[1] - 1)
        losses += float(loss_of(outputs, targets)) * scored
        if cell.objective != MSE:
            right += float((outputs[:, :-1].argmax(-1) == targets[:, 1:]).sum())
        count += scored
    model.train(training)
    loss = losses / count
    if cell.objective == MSE:
        return Point(epoch, train_loss, loss, 1 - loss / float(part.targets[:, 1:].double().var(correction=0)))
    return Point(epoch, train_loss, loss, right / count)
