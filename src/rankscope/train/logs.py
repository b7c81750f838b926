"""Training logs: mean loss, throughput, CSV curves and TensorBoard events."""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    """Mean loss since the last log line, accumulated on the device to avoid synchronisation.

    Unlike the Trainer's own sum it is saved with every snapshot, so that a resumed run has the same loss curve.
    """

    def __init__(self) -> None:
        self.total = torch.zeros(())
        self.steps = 0
        self.finite = torch.ones((), dtype=torch.bool)

    def add(self, loss: Float[Tensor, ""]) -> None:
        """Add the loss of a micro-batch, already divided by the number of micro-batches."""
        value = loss.detach().float()
        self.total = self.total.to(value.device) + value
        self.finite = self.finite.to(value.device) & value.isfinite()

    def step(self) -> None:
        """Count an optimiser step."""
        self.steps += 1

    def state(self) -> tuple[float, int]:
        """Return the sum of losses, averaged over processes, and its number of steps. Collective operation."""
        return float(processes.mean(self.total)), self.steps

    def restore(self, total: float, steps: int) -> None:
        """Restore a saved state."""
        self.total, self.steps = torch.tensor(total, dtype=torch.float32), steps

    def take(self) -> float:
        """Return the mean loss per step since the last call, over all processes. Collective operation."""
        total, steps = self.state()
        self.total, self.steps = torch.zeros_like(self.total), 0
        return total / max(steps, 1)


class Clock:
    """Training time since the last log line, excluding validation and spectra."""

    def __init__(self) -> None:
        self.since = time.perf_counter()
        self.paused = 0.0

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Exclude the block from the time."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.paused += time.perf_counter() - begun

    def take(self) -> float:
        """Return the seconds of training since the last call."""
        now = time.perf_counter()
        spent = now - self.since - self.paused
        self.since, self.paused = now, 0.0
        return max(spent, 1e-9)


def series_per_step(config: PretrainConfig) -> int:
    """Return the series per optimiser step, over all processes."""
    return config.batch_size * config.accumulation * processes.count()


def tokens_per_series(config: PretrainConfig) -> int:
    """Return the encoder and decoder tokens per series, including special tokens."""
    if config.family_record.strategy == "continuous":
        decoded = 1 if config.family_record.decoding else config.horizon // config.model.patch_size
        return config.context // config.model.patch_size + 1 + decoded  # patches, register token, answers
    return config.context + 1 + config.horizon + 1  # each ends in EOS


def append_row(file: Path, row: Mapping[str, Any]) -> None:
    """Append a row; where it brings columns that the file has not, the file is written anew with them."""
    columns = _columns(file)
    wider = [*columns, *(name for name in row if name not in columns)]
    if wider != columns:
        _write(file, wider, read_rows(file))
    with file.open("a", newline="", encoding="utf-8") as handle:
        csv.DictWriter(handle, wider).writerow(dict(row))


def _columns(file: Path) -> list[str]:
    if not file.exists():
        return []
    with file.open(newline="", encoding="utf-8") as handle:
        return next(csv.reader(handle), [])


def _write(file: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    with atomic_file(file) as path, path.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, columns)
        writer.writeheader()
        writer.writerows(rows)


def read_rows(file: Path) -> list[dict[str, str]]:
    """Read the rows of a curve, ignoring a truncated last line and rows that do not fit the header."""
    if not file.exists():
        return []
    text = file.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    rows = csv.DictReader(whole.splitlines())
    return [row for row in rows if None not in row and None not in row.values()]


def forget_after(file: Path, step: int) -> None:
    """Drop the rows after ``step``, which will be repeated, and a truncated last line."""
    if not file.exists():
        return
    kept = [row for row in read_rows(file) if int(row["step"]) <= step]
    if not kept:
        file.unlink()
        return
    _write(file, list(kept[0]), kept)


def last_loss(run: Path) -> float:
    """Return the last loss of a run's log."""
    return float(read_rows(run / LOSSES)[-1]["loss"])


class Events:
    """TensorBoard writer for ``folder``; a no-op without one."""

    def __init__(self, folder: Path | None, step: int = 0) -> None:
        """Open the files; events after ``step``, where the run resumes, are purged."""
        self.writer: Any = None
        if folder is None:
            return
        if not tensorboard_installed():
            warnings.warn(TENSORBOARD_MISSING, stacklevel=2)
            return
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder), purge_step=step + 1 if step else None)

    def add(self, step: int, values: Mapping[str, Any], group: str = "train") -> None:
        """Add the values of a step as ``group/name``, skipping None."""
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
    """Return whether tensorboard is installed."""
    return importlib.util.find_spec("tensorboard") is not None
