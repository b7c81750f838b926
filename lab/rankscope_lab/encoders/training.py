"""Training of a single audit run."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from rankscope.errors import DataError
from rankscope.io import codec
from rankscope_lab.data.table import check_digest
from rankscope_lab.encoders.data import Part, RunData
from rankscope_lab.encoders.models import AuditModel, build
from rankscope_lab.encoders.run_spec import MSE, Point, RunSpec
from rankscope_lab.kernels import accelerate
from rankscope_lab.machine import FLOAT32, products
from rankscope_lab.runs import (
    random_tensors,
    read_state,
    restore_random,
    restore_training,
    restoring,
    training_tensors,
    write_state,
)

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
    """Return True if a validation follows the ``epoch``-th epoch, counted from 1: the first, every 20th, the last."""
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
def score(model: nn.Module, part: Part, spec: RunSpec, epoch: int, train_loss: float) -> Point:
    """Validate: loss and accuracy (R² under MSE) over all positions of all series, in evaluation mode."""
    training = model.training
    model.eval()
    step = max(1, SCORED // max(1, spec.channels)) if spec.encoder in ("ci", "cat") else SCORED
    losses, right, count = 0.0, 0.0, 0
    for start in range(0, len(part.inputs), step):
        inputs, targets = part.inputs[start : start + step], part.targets[start : start + step]
        outputs = model(inputs)
        scored = len(inputs) * (inputs.shape[1] - 1)
        losses += float(loss_of(outputs, targets)) * scored
        if spec.objective != MSE:
            right += float((outputs[:, :-1].argmax(-1) == targets[:, 1:]).sum())
        count += scored
    model.train(training)
    loss = losses / count
    if spec.objective == MSE:
        return Point(epoch, train_loss, loss, 1 - loss / float(part.targets[:, 1:].double().var(correction=0)))
    return Point(epoch, train_loss, loss, right / count)


@dataclass(frozen=True)
class ComputeOptions:
    """Device, precision and kernels that runs are computed with; no part of what they are.

    Attributes:
        device: where.
        precision: of matrix products: ``float32``, as published, or ``bfloat16``.
        kernels: use the compiled functions of `rankscope_lab.kernels` on the CPU, where they can be compiled.
        stop: epoch after which runs are cut short; 0: none is. The learning rate goes on as if they were not.
    """

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    precision: str = FLOAT32
    kernels: bool = True
    stop: int = 0

    def products(self) -> contextlib.AbstractContextManager[None]:
        """Context of forward and backward passes."""
        return products(self.device, self.precision)

    def last(self, spec: RunSpec) -> int:
        """Epochs that a run runs for."""
        return min(spec.epochs, self.stop or spec.epochs)


@dataclass
class Trained:
    """A finished run.

    Attributes:
        model: with the weights after the last epoch.
        points: its validations.
        seconds: training and validation.
        epochs: that it was trained for.
    """

    model: AuditModel
    points: list[Point]
    seconds: float
    epochs: int


def fresh(spec: RunSpec) -> tuple[AuditModel, torch.Generator]:
    """A model drawn with the run's seed, and the generator of the order of its batches, which goes on from there."""
    torch.manual_seed(spec.seed)
    model = build(spec)
    order = torch.Generator()
    order.set_state(torch.get_rng_state())
    return model, order


def optimiser(parameters: list[Tensor]) -> torch.optim.AdamW:
    """AdamW in one group, weight decay on everything."""
    return torch.optim.AdamW(parameters, lr=0.0, weight_decay=WEIGHT_DECAY, fused=True)


@dataclass(frozen=True)
class Begun:
    """A run that is not finished: how far it is, and what it goes on from as if it had not stopped.

    Attributes:
        run: its id.
        epoch: how many are done.
        points: validations so far.
        seconds: that it took so far.
        precision: of matrix products.
        digest: of the table, as in the run's result.
        tensors: weights, state of the optimiser, states of the random generators.
    """

    run: str
    epoch: int
    points: tuple[Point, ...]
    seconds: float
    precision: str = FLOAT32
    digest: str = ""
    tensors: Mapping[str, Tensor] = field(default_factory=dict, repr=False, compare=False)

    KEYS: ClassVar = ("cell=run", "epoch", "points", "seconds", "precision", "digest")

    def write(self, path: Path) -> None:
        """Write it in place of the state before, in one step."""
        write_state(path, self.tensors, codec.plain(self))


def read_begun(path: Path, spec: RunSpec, precision: str, digest: str) -> Begun | None:
    """Read the state of a run; None if there is no such file.

    Raises:
        DataError: the file is damaged, of another run, or of a run in another precision or on another table.
    """
    found = read_state(path)
    if found is None:
        return None
    begun = replace(codec.parse(Begun, found[1], str(path)), tensors=found[0])
    if begun.run != spec.id:
        raise DataError(f"{path} is of the run {begun.run}, not of {spec.id}: delete it.")
    if begun.precision != precision:
        raise DataError(f"{path} is of a run in {begun.precision}, not in {precision}: delete it, or run that one on.")
    check_digest(begun.digest, digest, str(path))
    return begun


def train(
    spec: RunSpec,
    data: RunData,
    how: ComputeOptions,
    *,
    snapshot: Path | None = None,
    progress: Callable[[int], None] = lambda epochs: None,
) -> Trained:
    """Train a run to its last epoch, or until a loss is not finite.

    Args:
        spec: which.
        data: its tensors.
        how: device, precision.
        snapshot: file that the state is kept in after each validation; a run that finds one there goes on from it.
        progress: called with the number of epochs done since the last call.
    """
    model, order = fresh(spec)
    model.to(how.device).train()
    if how.kernels and how.device.type == "cpu":
        accelerate(model)
    adam = optimiser(list(model.parameters()))
    began, before = time.perf_counter(), 0.0
    points: list[Point] = []
    epoch = 0
    if snapshot is not None and (found := read_begun(snapshot, spec, how.precision, data.digest)) is not None:
        with restoring(snapshot):
            restore_training(found.tensors, model, adam)
            restore_random(found.tensors, order)
        epoch, before = found.epoch, found.seconds
        points = kept_points(found.points, max(epoch, how.last(spec)))
        progress(epoch)
    train_part, held = data.train.to(how.device), data.validation.to(how.device)
    while epoch < how.last(spec) and (not points or finite(points[-1])):
        epoch += 1
        for group in adam.param_groups:
            group["lr"] = learning_rate(epoch - 1, spec.epochs)
        mean = _epoch(model, adam, train_part, torch.randperm(len(train_part.inputs), generator=order), how)
        if validated(epoch, how.last(spec)) or not math.isfinite(mean):
            points.append(score(model, held, spec, epoch, mean))
            seconds = before + time.perf_counter() - began
            if snapshot is not None:
                tensors = training_tensors(model, adam) | random_tensors(order)
                Begun(spec.id, epoch, tuple(points), seconds, how.precision, data.digest, tensors).write(snapshot)
        progress(1)
    return Trained(model, points, before + time.perf_counter() - began, epoch)


def kept_points(points: Sequence[Point], last: int) -> list[Point]:
    """Validations of a run that is taken up: those that it would have had with ``last`` epochs from the beginning."""
    return [point for point in points if validated(point.epoch, last) or not finite(point)]


def finite(point: Point) -> bool:
    """Return True if both losses are: a run ends at the first point where one is not."""
    return math.isfinite(point.loss) and math.isfinite(point.train_loss)


def _epoch(model: AuditModel, adam: torch.optim.AdamW, part: Part, order: Tensor, how: ComputeOptions) -> float:
    """One pass over the training series; the mean loss of its steps."""
    parameters = list(model.parameters())
    losses = []
    for rows in order.split(BATCH):
        rows = rows.to(how.device)
        adam.zero_grad(set_to_none=True)
        with how.products():
            loss = loss_of(model(part.inputs[rows]), part.targets[rows])
            penalty = model.encoder.penalty()
            if penalty is not None:
                loss = loss + penalty
            loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        adam.step()
        losses.append(loss.detach())
    return float(torch.stack(losses).mean())
