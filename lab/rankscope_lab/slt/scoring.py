"""Errors of a model on a part, and how fast it forecasts."""

from __future__ import annotations

import statistics
import time

import torch
from torch import Tensor, nn

from rankscope_lab.data.windows import Windows
from rankscope_lab.machine import products
from rankscope_lab.slt.cell import Score

BATCH = 32
"""Windows per forward pass, all variables of each."""
PASSES, WARM_UP, TIMED = 5, 2, 8
"""Passes that are timed, batches before them, and batches of a pass."""


class Errors:
    """Adds up errors over batches.

    Sums stay on the device, so that a GPU need not wait.
    """

    def __init__(self, device: str) -> None:
        self._sums = torch.zeros(2, dtype=torch.float64, device=device if device != "mps" else "cpu")
        self._count = 0

    def add(self, forecasts: Tensor, targets: Tensor) -> None:
        """Take in a batch."""
        gaps = (forecasts.detach() - targets).float()
        self._sums += torch.stack((gaps.square().mean(), gaps.abs().mean())).double() * gaps.numel()
        self._count += gaps.numel()

    @property
    def score(self) -> Score:
        """Means over all values so far."""
        mse, mae = (self._sums / self._count).tolist()
        return Score(mse, mae)


@torch.no_grad()
def score(model: nn.Module, windows: Windows, precision: str) -> Score:
    """Errors over every window of a part; the model is left in eval mode."""
    device = str(windows.values.device)
    model.eval()
    errors = Errors(device)
    with products(device, precision):
        for at in torch.arange(len(windows), device=device).split(BATCH):
            inputs, targets = windows.batch(at)
            errors.add(model(inputs).float(), targets)
    return errors.score


@torch.no_grad()
def windows_per_second(
    model: nn.Module, windows: Windows, precision: str, batches: int = TIMED
) -> tuple[float, float, float]:
    """Median, least and largest rate over `PASSES` passes through the first batches, cut beforehand.

    The published benchmark passes through all test windows; a rate needs fewer.
    """
    device = str(windows.values.device)
    model.eval()
    ready = [
        windows.batch(at)[0].contiguous() for at in torch.arange(len(windows), device=device).split(BATCH)[:batches]
    ]
    count = sum(len(inputs) for inputs in ready)
    rates = []
    with products(device, precision):
        for inputs in ready[:WARM_UP]:
            model(inputs)
        for _ in range(PASSES):
            settled(device)
            begun = time.perf_counter()
            for inputs in ready:
                model(inputs)
            settled(device)
            rates.append(count / (time.perf_counter() - begun))
    return statistics.median(rates), min(rates), max(rates)


def settled(device: str) -> None:
    """Wait until the device has done what it was asked."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
