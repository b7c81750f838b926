"""What a run measures of itself between two log lines: the mean loss, and the series and tokens per second."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.train import processes
from rankscope.train.config import PretrainConfig


class LossMeter:
    """Mean loss since the last log line, summed where the loss is, so that no step waits for the device.

    transformers keeps its own sum, but forgets it when a run is resumed between two log lines; this one is stored
    with every snapshot, so the curve of a resumed run is the curve of an undisturbed one.
    """

    def __init__(self) -> None:
        self.total = torch.zeros(())
        self.steps = 0
        self.finite = torch.ones((), dtype=torch.bool)

    def add(self, loss: Float[Tensor, ""]) -> None:
        """Take the loss of one micro-batch, already divided by their number."""
        value = loss.detach().float()
        self.total = self.total.to(value.device) + value
        self.finite = self.finite.to(value.device) & value.isfinite()

    def step(self) -> None:
        """Count an optimiser step."""
        self.steps += 1

    def state(self) -> tuple[float, int]:
        """Sum of the losses, averaged over processes, and the steps in it. All processes must ask together."""
        return float(processes.mean(self.total)), self.steps

    def restore(self, total: float, steps: int) -> None:
        """Go on from a stored state."""
        self.total, self.steps = torch.tensor(total, dtype=torch.float32), steps

    def take(self) -> float:
        """Mean loss per step since the last call, over all processes, which must ask together."""
        total, steps = self.state()
        self.total, self.steps = torch.zeros_like(self.total), 0
        return total / max(steps, 1)


class Clock:
    """Time spent on training since the last log line, without the pauses for scores and spectra."""

    def __init__(self) -> None:
        self.since = time.perf_counter()
        self.paused = 0.0

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Do not count what happens in the block."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.paused += time.perf_counter() - begun

    def take(self) -> float:
        """Seconds of training since the last call."""
        now = time.perf_counter()
        spent = now - self.since - self.paused
        self.since, self.paused = now, 0.0
        return max(spent, 1e-9)


def series_per_step(config: PretrainConfig) -> int:
    """Series that one optimiser step sees, over all processes."""
    return config.batch_size * config.accumulation * processes.count()


def tokens_per_series(config: PretrainConfig) -> int:
    """Positions that encoder and decoder attend to for one series, special tokens included."""
    if config.family_record.strategy == "continuous":
        return config.context // config.model.patch_size + 1 + 1  # patches, register token; one decoder step
    return config.context + 1 + config.horizon + 1  # each ends in EOS
