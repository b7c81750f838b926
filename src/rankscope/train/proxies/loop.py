"""The loop that trains a stand-in: AdamW, warm-up, cosine to a tenth, one thread's worth of work per step."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from rankscope.engine.progress import Progress
from rankscope.errors import RankscopeError
from rankscope.train.proxies.record import Batch, Batches

HELD_OUT = 8
"""Batches that are held out and scored before and after training."""
POINTS = 100
"""About so many rows of the loss curve."""
_LEAST = 0.1
"""Share of the peak learning rate that is left at the end."""


@dataclass(frozen=True)
class Schedule:
    """How long to train, and how fast."""

    steps: int
    learning_rate: float
    weight_decay: float

    def share(self, step: int) -> float:
        """Share of the peak rate at a step: linear warm-up over a twentieth of the steps, then a cosine to a tenth.

        >>> schedule = Schedule(100, 1e-3, 0.0)
        >>> schedule.share(0), round(schedule.share(5), 6), round(schedule.share(100), 6)
        (0.2, 1.0, 0.1)
        """
        warm = max(1, self.steps // 20)
        if step < warm:
            return (step + 1) / warm
        done = (step - warm) / max(1, self.steps - warm)
        return _LEAST + (1 - _LEAST) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))


@dataclass(frozen=True)
class Trained:
    """What happened.

    Attributes:
        curve: rows (step, mean loss since the last row, learning rate).
        before: mean loss over the held-out batches at the start.
        after: the same at the end.
        seconds: wall time of the steps.
    """

    curve: list[tuple[int, float, float]]
    before: float
    after: float
    seconds: float


def train(model: nn.Module, batches: Batches, schedule: Schedule, progress: Progress) -> Trained:
    """Train in place.

    Raises:
        RankscopeError: the loss stopped being a number.
    """
    before = held_out_loss(model, batches)
    start = time.perf_counter()
    # as everywhere, vectors (norms and biases) are not decayed
    matrices = [p for p in model.parameters() if p.requires_grad and p.ndim > 1]
    vectors = [p for p in model.parameters() if p.requires_grad and p.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": schedule.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=schedule.learning_rate, betas=(0.9, 0.98))
    every = max(1, schedule.steps // POINTS)
    curve: list[tuple[int, float, float]] = []
    losses: list[float] = []
    model.train()
    for step in range(schedule.steps):
        rate = schedule.learning_rate * schedule.share(step)
        for group in optimiser.param_groups:
            group["lr"] = rate
        losses.append(_step(model, batches(step, False), optimiser))
        if not math.isfinite(losses[-1]):
            raise RankscopeError(f"the loss is {losses[-1]} at step {step + 1}: train with a lower learning rate.")
        if (step + 1) % every == 0 or step + 1 == schedule.steps:
            curve.append((step + 1, sum(losses) / len(losses), rate))
            losses = []
            progress(step + 1, schedule.steps, f"training, loss {curve[-1][1]:.3f}")
    seconds = time.perf_counter() - start
    return Trained(curve, before, held_out_loss(model, batches), seconds)


@torch.no_grad()
def held_out_loss(model: nn.Module, batches: Batches) -> float:
    """Mean loss of the held-out batches, the module in evaluation mode."""
    model.eval()
    return sum(float(_loss(model, batches(step, True))) for step in range(HELD_OUT)) / HELD_OUT


def _step(model: nn.Module, batch: Batch, optimiser: Any) -> float:
    optimiser.zero_grad(set_to_none=True)
    loss = _loss(model, batch)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    return float(loss.detach())


def _loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    loss: torch.Tensor = model(**batch).loss
    return loss
