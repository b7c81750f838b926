"""Logs of a run: mean loss, speed, curves as CSV files, and event files for TensorBoard."""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.io.atomic import atomic_file
from rankscope.train import processes
from rankscope.train.config import PretrainConfig

LOSSES, SCORES = "loss.csv", "validation.csv"
TENSORBOARD = "tensorboard"
TENSORBOARD_MISSING = "tensorboard is not installed, so no event files are written: pip install 'rankscope[logs]'."


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


def append_row(file: Path, row: Mapping[str, Any]) -> None:
    """Add a line; the first one brings the header. Later rows must have the columns of the first."""
    fresh = not file.exists()
    with file.open("a", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, list(row))
        if fresh:
            writer.writeheader()
        writer.writerow(dict(row))


def read_rows(file: Path) -> list[dict[str, str]]:
    """Read the whole lines of a curve, in order; a last one that was cut off does not count."""
    if not file.exists():
        return []
    text = file.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    return list(csv.DictReader(whole.splitlines()))


def forget_after(file: Path, step: int) -> None:
    """Drop the lines of steps that will be taken again, and what was cut off."""
    if not file.exists():
        return
    kept = [row for row in read_rows(file) if int(row["step"]) <= step]
    if not kept:
        file.unlink()
        return
    with atomic_file(file) as path, path.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, list(kept[0]))
        writer.writeheader()
        writer.writerows(kept)


def last_value(file: Path, column: str) -> float:
    """Return the last entry of a column."""
    return float(read_rows(file)[-1][column])


class Events:
    """Writes scalars by step into ``folder``; does nothing without one."""

    def __init__(self, folder: Path | None, step: int = 0) -> None:
        """Open the files; ``step`` is where the run goes on: what was written after it no longer counts."""
        self.writer: Any = None
        if folder is None:
            return
        if not tensorboard_installed():
            warnings.warn(TENSORBOARD_MISSING, stacklevel=2)
            return
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder), purge_step=step + 1 if step else None)

    def add(self, step: int, values: Mapping[str, Any], group: str = "train") -> None:
        """Add the values of one step, each as ``group/name``; None is left out."""
        if self.writer is None:
            return
        for name, value in values.items():
            if value is not None:
                self.writer.add_scalar(f"{group}/{name}", float(value), step)
        self.writer.flush()

    def close(self) -> None:
        """Close the files."""
        if self.writer is not None:
            self.writer.close()


def tensorboard_installed() -> bool:
    """Return True if the package tensorboard is installed."""
    return importlib.util.find_spec("tensorboard") is not None
